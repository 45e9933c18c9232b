/** Finds the source file of a place in the built agent, and how much of each built file comes from which source. */
import { readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { fileURLToPath } from "node:url";
import { agentFilesWithMaps } from "@picolet/scripts/build/build.ts";
import { fileOf, type Place } from "./heap-owners.ts";

interface BuiltFile {
  readonly map: SourceMap;
  /** Bytes of each source. */
  readonly inputs: ReadonlyMap<string, number>;
}

export class AgentSources {
  /** By their code without the hashes in it. */
  readonly #built: ReadonlyMap<string, BuiltFile>;
  /** By URL; undefined for what is not of this build. */
  readonly #files = new Map<string, BuiltFile | undefined>();

  private constructor(built: ReadonlyMap<string, BuiltFile>) {
    this.#built = built;
  }

  /** Builds the agent once more, with source maps: the same code, but for the hashes in the names of its parts. */
  static async build(): Promise<AgentSources> {
    const { files, metafile } = await agentFilesWithMaps();
    const inputsOf = (path: string): ReadonlyMap<string, number> => {
      const output = Object.entries(metafile?.outputs ?? {}).find(([name]) => path.endsWith(`/${name}`))?.[1];
      return new Map(Object.entries(output?.inputs ?? {}).map(([name, { bytesInOutput }]) => [name, bytesInOutput]));
    };
    const built = files.map(({ path, code, map }): [string, BuiltFile] => [
      withoutHashes(code),
      { map: new SourceMap(JSON.parse(map)), inputs: inputsOf(path) },
    ]);
    return new AgentSources(new Map(built));
  }

  sourceAt({ url, line, column }: Place): string {
    const entry = this.#fileOf(url)?.map.findEntry(line, column);
    if (entry !== undefined && "originalSource" in entry) return entry.originalSource.replace(/^(\.\.\/)+/, "");
    return fileOf(url);
  }

  /** The share of each source in a built file's text. Empty for a file of another build. */
  sharesOf(url: string): ReadonlyMap<string, number> {
    const inputs = this.#fileOf(url)?.inputs ?? new Map<string, number>();
    const sum = inputs.values().reduce((all, bytes) => all + bytes, 0);
    return new Map(inputs.entries().map(([source, bytes]) => [source, bytes / sum]));
  }

  #fileOf(url: string): BuiltFile | undefined {
    if (!this.#files.has(url)) this.#files.set(url, this.#built.get(withoutHashes(textOf(url))));
    return this.#files.get(url);
  }
}

function textOf(url: string): string {
  const path = url.startsWith("file:") ? fileURLToPath(url) : url;
  return path.startsWith("/") ? readFileSync(path, "utf8") : "";
}

const withoutHashes = (code: string): string => code.replace(/-[A-Z0-9]{8}\.cjs/g, ".cjs");
