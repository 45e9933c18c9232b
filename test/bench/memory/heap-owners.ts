/**
 * Finds the source file that each object of a heap belongs to. A function belongs to the file where it was written; an
 * object to the file of its class; an object without a place of its own (arrays, strings, scopes, bytecode) to its only
 * keeper (its immediate dominator).
 */

import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { HeapSnapshot } from "./heap-snapshot.ts";

/** The kinds of a node. */
export const HEAP_KINDS = ["code", "source text", "data", "array buffers"] as const;
export type HeapKind = (typeof HEAP_KINDS)[number];

/** Position in a loaded file, from 0. */
export interface Place {
  readonly url: string;
  readonly line: number;
  readonly column: number;
}

/** KiB by owner and kind. What array buffers hold lies outside the heap, and does not count to `heapKiB`. */
export class OwnedHeap extends Map<string, Record<HeapKind, number>> {
  add(owner: string, kind: HeapKind, kib: number): void {
    const entry = this.get(owner) ?? { code: 0, "source text": 0, data: 0, "array buffers": 0 };
    this.set(owner, entry);
    entry[kind] += kib;
  }
}

export interface HeapByOwner {
  readonly owned: OwnedHeap;
  /** Everything in the heap. */
  readonly heapKiB: number;
  /** Texts of Node's own files, which V8 counts as external memory: they lie in the executable. */
  readonly nodeTextsKiB: number;
}

export interface HeapSources {
  /** By V8's number of the script. */
  readonly urls: ReadonlyMap<number, string>;
  /** Finds the source file of a place. */
  readonly sourceAt: (place: Place) => string;
}

/** Kept by more than one, or by V8 and Node alone. */
const SHARED = "(shared, or of V8's and Node's start)";
const NONE = 0xffffffff;

export function heapByOwner(snapshot: HeapSnapshot, sources: HeapSources): HeapByOwner {
  const graph = new Graph(snapshot);
  const seeds = new Map<number, string>();
  seedByPlace(graph, seeds, sources);
  const texts = seedScripts(graph, seeds);
  seedScopes(graph, seeds);
  seedShapes(graph, seeds);
  const dominators = dominatorsOf(graph);
  const owners: (string | undefined)[] = new Array(graph.count);
  const owned = new OwnedHeap();
  let heapKiB = 0;
  let nodeTextsKiB = 0;
  for (const node of graph.order) {
    const dominator = dominators[node] ?? 0;
    const owner = seeds.get(node) ?? (dominator === node ? undefined : owners[dominator]);
    owners[node] = owner;
    const kib = graph.size(node) / KIBIBYTE;
    if (kib === 0) continue;
    if (texts.inNode.has(node)) {
      nodeTextsKiB += kib;
      continue;
    }
    const type = graph.type(node);
    if (type === "native") {
      if (graph.name(node) === "system / JSArrayBufferData") owned.add(owner ?? SHARED, "array buffers", kib);
      continue;
    }
    heapKiB += kib;
    owned.add(owner ?? SHARED, texts.inHeap.has(node) ? "source text" : kindOf(graph, node, type), kib);
  }
  return { owned, heapKiB, nodeTextsKiB };
}

/** Code that V8 makes of a program, and data that the program makes. */
const CODE_NAMES =
  /^system \/ (Bytecode|Shared|Scope|Feedback|Uncompiled|Preparse|Script|Code|ClosureFeedback|ByteArray|TrustedByteArray|FixedArray \(constant|Instruction|Interpreter|ArrayBoilerplate|ObjectBoilerplate|ClassBoilerplate|TrustedFixedArray|ProtectedFixedArray|WeakArrayList)/;

function kindOf(graph: Graph, node: number, type: string): HeapKind {
  if (type === "code" || type === "closure") return "code";
  return CODE_NAMES.test(graph.name(node)) ? "code" : "data";
}

function seedByPlace(graph: Graph, seeds: Map<number, string>, { urls, sourceAt }: HeapSources): void {
  const { locations, meta } = graph.snapshot;
  const field = (name: string): number => meta.location_fields.indexOf(name);
  const [object, script, line, column] = [field("object_index"), field("script_id"), field("line"), field("column")];
  for (let at = 0; at < locations.length; at += meta.location_fields.length) {
    const url = urls.get(locations[at + script] ?? 0);
    if (url === undefined) continue;
    const node = (locations[at + object] ?? 0) / meta.node_fields.length;
    const source = sourceAt({ url, line: locations[at + line] ?? 0, column: locations[at + column] ?? 0 });
    seeds.set(node, source);
    if (graph.type(node) !== "closure") continue;
    const shared = graph.target(node, "shared");
    if (shared !== undefined) seeds.set(shared, source);
  }
}

/** A file's own records and text, which functions lead to. */
function seedScripts(graph: Graph, seeds: Map<number, string>): ScriptTexts {
  const texts: ScriptTexts = { inHeap: new Set(), inNode: new Set() };
  for (let node = 0; node < graph.count; node += 1) {
    const script = graph.target(node, "script");
    if (script === undefined || seeds.has(script) || graph.type(script) !== "code") continue;
    const name = graph.target(script, "name");
    const source = graph.target(script, "source");
    if (name === undefined) continue;
    const file = fileOf(graph.name(name));
    seeds.set(script, file);
    if (source === undefined || graph.type(source) !== "string") continue;
    seeds.set(source, file);
    (file.startsWith("node:") ? texts.inNode : texts.inHeap).add(source);
  }
  return texts;
}

interface ScriptTexts {
  readonly inHeap: Set<number>;
  /** Nodes of Node's own files: they lie in its executable, though V8 counts them. */
  readonly inNode: Set<number>;
}

/** Names the owner of a place without a source. */
export const fileOf = (url: string): string =>
  url.startsWith("node:") ? url : `file ${url.replace(/^.*\/(?=dist\/|node_modules\/)/, "")}`;

/** The variables that functions share: a scope is where the function is whose scope it is. */
function seedScopes(graph: Graph, seeds: Map<number, string>): void {
  for (const [node, owner] of [...seeds]) {
    const scope = graph.target(node, "name_or_scope_info");
    if (scope !== undefined && graph.type(scope) === "code" && !seeds.has(scope)) seeds.set(scope, owner);
  }
  for (let node = 0; node < graph.count; node += 1) {
    if (!graph.name(node).startsWith("system / Context") || seeds.has(node)) continue;
    const scope = graph.target(node, "scope_info");
    const owner = scope === undefined ? undefined : seeds.get(scope);
    if (owner !== undefined) seeds.set(node, owner);
  }
  // The scope of a whole file has no owner once the file has run, except the functions in it.
  for (let node = 0; node < graph.count; node += 1) {
    if (graph.type(node) !== "closure") continue;
    const context = graph.target(node, "context");
    const shared = graph.target(node, "shared");
    const script = shared === undefined ? undefined : graph.target(shared, "script");
    const file = script === undefined ? undefined : seeds.get(script);
    if (context !== undefined && file !== undefined && !seeds.has(context)) seeds.set(context, file);
  }
}

/** Assigns the shapes of objects: a shape belongs to the place of its constructor. */
function seedShapes(graph: Graph, seeds: Map<number, string>): void {
  for (let node = 0; node < graph.count; node += 1) {
    if (graph.name(node) !== "system / Map" || seeds.has(node)) continue;
    const maker = graph.target(node, "constructor");
    const owner = maker === undefined ? undefined : seeds.get(maker);
    if (owner !== undefined) seeds.set(node, owner);
  }
}

/** Nodes by their number, with their edges. */
class Graph {
  readonly snapshot: HeapSnapshot;
  readonly count: number;
  /** Where the edges of each node begin; one more than there are nodes. */
  readonly firstEdge: Uint32Array;
  /** Nodes that are reached from the root, a node's dominator before it (reverse postorder). */
  readonly order: number[] = [];
  readonly #fields: number;
  readonly #typeField: number;
  readonly #nameField: number;
  readonly #sizeField: number;
  readonly edgeFields: number;
  readonly #edgeType: number;
  readonly #edgeName: number;
  readonly #edgeTarget: number;
  readonly #weak: number;
  readonly #element: number;
  readonly #hidden: number;

  constructor(snapshot: HeapSnapshot) {
    this.snapshot = snapshot;
    const { node_fields, edge_fields, edge_types } = snapshot.meta;
    this.#fields = node_fields.length;
    this.count = snapshot.nodes.length / this.#fields;
    this.#typeField = node_fields.indexOf("type");
    this.#nameField = node_fields.indexOf("name");
    this.#sizeField = node_fields.indexOf("self_size");
    this.edgeFields = edge_fields.length;
    this.#edgeType = edge_fields.indexOf("type");
    this.#edgeName = edge_fields.indexOf("name_or_index");
    this.#edgeTarget = edge_fields.indexOf("to_node");
    this.#weak = edge_types[0].indexOf("weak");
    this.#element = edge_types[0].indexOf("element");
    this.#hidden = edge_types[0].indexOf("hidden");
    const edgeCount = node_fields.indexOf("edge_count");
    this.firstEdge = new Uint32Array(this.count + 1);
    for (let node = 0; node < this.count; node += 1) {
      const edges = snapshot.nodes[node * this.#fields + edgeCount] ?? 0;
      this.firstEdge[node + 1] = (this.firstEdge[node] ?? 0) + edges;
    }
    this.#number();
  }

  type(node: number): string {
    return this.snapshot.meta.node_types[0][this.#field(node, this.#typeField)] ?? "";
  }

  name(node: number): string {
    return this.snapshot.strings[this.#field(node, this.#nameField)] ?? "";
  }

  size(node: number): number {
    return this.#field(node, this.#sizeField);
  }

  #field(node: number, field: number): number {
    return this.snapshot.nodes[node * this.#fields + field] ?? 0;
  }

  /** The node that a named edge leads to. */
  target(node: number, name: string): number | undefined {
    for (let edge = this.firstEdge[node] ?? 0; edge < (this.firstEdge[node + 1] ?? 0); edge += 1) {
      const type = this.#edgeField(edge, this.#edgeType);
      if (type === this.#element || type === this.#hidden) continue;
      if (this.snapshot.strings[this.#edgeField(edge, this.#edgeName)] === name) return this.to(edge);
    }
    return undefined;
  }

  to(edge: number): number {
    return this.#edgeField(edge, this.#edgeTarget) / this.#fields;
  }

  /** True when the edge keeps its target alive. */
  isStrong(edge: number): boolean {
    return this.#edgeField(edge, this.#edgeType) !== this.#weak;
  }

  #edgeField(edge: number, field: number): number {
    return this.snapshot.edges[edge * this.edgeFields + field] ?? 0;
  }

  /** Depth first, without a stack of calls. What only weak edges reach comes last, kept by the root. */
  #number(): void {
    const seen = new Uint8Array(this.count);
    const next = this.firstEdge.slice(0, this.count);
    const postorder: number[] = [];
    const visit = (root: number): void => {
      const path = [root];
      seen[root] = 1;
      for (let node = path.at(-1); node !== undefined; node = path.at(-1)) {
        const edge = next[node] ?? 0;
        if (edge >= (this.firstEdge[node + 1] ?? 0)) {
          postorder.push(node);
          path.pop();
          continue;
        }
        next[node] = edge + 1;
        const target = this.to(edge);
        if (seen[target] === 1 || !this.isStrong(edge)) continue;
        seen[target] = 1;
        path.push(target);
      }
    };
    visit(0);
    for (let index = postorder.length - 1; index >= 0; index -= 1) this.order.push(postorder[index] ?? 0);
    for (let node = 0; node < this.count; node += 1) if (seen[node] === 0) this.order.push(node);
  }
}

/** By Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm". */
function dominatorsOf(graph: Graph): Uint32Array {
  const rank = new Uint32Array(graph.count);
  for (const [index, node] of graph.order.entries()) rank[node] = index;
  const incoming = incomingOf(graph);
  const dominators = new Uint32Array(graph.count).fill(NONE);
  dominators[0] = 0;
  const meet = (one: number, other: number): number => {
    let [a, b] = [one, other];
    while (a !== b) {
      while ((rank[a] ?? 0) > (rank[b] ?? 0)) a = dominators[a] ?? 0;
      while ((rank[b] ?? 0) > (rank[a] ?? 0)) b = dominators[b] ?? 0;
    }
    return a;
  };
  for (let changed = true; changed; ) {
    changed = false;
    for (const node of graph.order) {
      if (node === 0) continue;
      let dominator = NONE;
      for (let at = incoming.first[node] ?? 0; at < (incoming.first[node + 1] ?? 0); at += 1) {
        const from = incoming.from[at] ?? 0;
        if (dominators[from] === NONE) continue;
        dominator = dominator === NONE ? from : meet(from, dominator);
      }
      if (dominator === NONE) dominator = 0;
      if (dominators[node] === dominator) continue;
      dominators[node] = dominator;
      changed = true;
    }
  }
  return dominators;
}

/** For each node, the node that retains it. */
function incomingOf(graph: Graph): { readonly first: Uint32Array; readonly from: Uint32Array } {
  const first = new Uint32Array(graph.count + 1);
  const each = (take: (from: number, to: number) => void): void => {
    for (let node = 0; node < graph.count; node += 1) {
      for (let edge = graph.firstEdge[node] ?? 0; edge < (graph.firstEdge[node + 1] ?? 0); edge += 1)
        if (graph.isStrong(edge)) take(node, graph.to(edge));
    }
  };
  each((_, to) => {
    first[to + 1] = (first[to + 1] ?? 0) + 1;
  });
  for (let node = 0; node < graph.count; node += 1) first[node + 1] = (first[node + 1] ?? 0) + (first[node] ?? 0);
  const at = first.slice(0, graph.count);
  const from = new Uint32Array(first[graph.count] ?? 0);
  each((node, to) => {
    from[at[to] ?? 0] = node;
    at[to] = (at[to] ?? 0) + 1;
  });
  return { first, from };
}
