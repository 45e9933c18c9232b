/**
 * A snapshot of a V8 heap, read as it comes: numbers go into typed arrays, so that its text is never there as a whole.
 * Format: V8's src/profiler/heap-snapshot-generator.cc, which each snapshot describes in its `meta`.
 */

export interface SnapshotMeta {
  readonly node_fields: readonly string[];
  readonly node_types: readonly [readonly string[], ...unknown[]];
  readonly edge_fields: readonly string[];
  readonly edge_types: readonly [readonly string[], ...unknown[]];
  readonly location_fields: readonly string[];
}

interface Header {
  readonly meta: SnapshotMeta;
  readonly node_count: number;
  readonly edge_count: number;
}

export interface HeapSnapshot {
  readonly meta: SnapshotMeta;
  /** `meta.node_fields` for each node. */
  readonly nodes: Uint32Array;
  /** `meta.edge_fields` for each edge, in the order of their nodes. */
  readonly edges: Uint32Array;
  /** `meta.location_fields` for each function and object whose constructor has a place in a script. */
  readonly locations: readonly number[];
  readonly strings: readonly string[];
}

const SECTION = /"(\w+)":\[/g;

export class HeapSnapshotReader {
  #text = "";
  /** undefined: before the first; "": between two. */
  #section: string | undefined;
  #header: Header | undefined;
  #target: Uint32Array | number[] = [];
  #count = 0;
  #nodes = new Uint32Array();
  #edges = new Uint32Array();
  #locations: number[] = [];

  push(chunk: string): void {
    this.#text += chunk;
    while (this.#section !== "strings" && this.#step());
  }

  end(): HeapSnapshot {
    const strings = JSON.parse(`[${this.#text.slice(0, this.#text.lastIndexOf("]"))}]`) as string[];
    if (this.#header === undefined || this.#section !== "strings") throw new Error("the heap snapshot is cut off");
    const { meta } = this.#header;
    return { meta, nodes: this.#nodes, edges: this.#edges, locations: this.#locations, strings };
  }

  /** @returns whether there may be more to do with what is here */
  #step(): boolean {
    if (this.#section === undefined || this.#section === "") return this.#enterSection();
    const end = this.#text.indexOf("]");
    // A number may go on in the next chunk.
    const complete = end < 0 ? this.#text.lastIndexOf(",") : end;
    if (complete >= 0) this.#takeNumbers(this.#text.slice(0, complete));
    if (complete >= 0) this.#text = this.#text.slice(complete + 1);
    if (end < 0) return false;
    this.#section = "";
    return true;
  }

  #enterSection(): boolean {
    if (this.#section === undefined) return this.#enterNodes();
    SECTION.lastIndex = 0;
    const found = SECTION.exec(this.#text);
    if (found === null) return false;
    const [, name = ""] = found;
    this.#section = name;
    this.#text = this.#text.slice(SECTION.lastIndex);
    this.#count = 0;
    this.#target = name === "edges" ? this.#edges : name === "locations" ? this.#locations : [];
    return true;
  }

  #enterNodes(): boolean {
    const mark = '"nodes":[';
    const at = this.#text.indexOf(mark);
    if (at < 0) return false;
    const { snapshot } = JSON.parse(`${this.#text.slice(0, at).replace(/,\s*$/, "")}}`) as { snapshot: Header };
    const { meta, node_count, edge_count } = snapshot;
    this.#header = snapshot;
    this.#nodes = new Uint32Array(node_count * meta.node_fields.length);
    this.#edges = new Uint32Array(edge_count * meta.edge_fields.length);
    this.#section = "nodes";
    this.#text = this.#text.slice(at + mark.length);
    this.#target = this.#nodes;
    return true;
  }

  #takeNumbers(text: string): void {
    if (text.trim() === "") return;
    for (const number of text.split(",")) {
      this.#target[this.#count] = Number(number);
      this.#count += 1;
    }
  }
}
