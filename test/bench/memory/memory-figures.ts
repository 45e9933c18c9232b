/**
 * The memory of an agent at rest by owner. First its mappings, while nothing disturbs it; then the inspector is opened,
 * V8 reports its spaces, and a snapshot of its heap is read. Run by itself, `node test/bench/memory/memory-figures.ts
 * [PODS] [hub]` measures one agent; build the programs first.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { HeapSpaceInfo } from "node:v8";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd } from "../../support/containerd/containerd.ts";
import { JoinedBoard } from "../hub/tunnel-figures.ts";
import { type MemoryFigures, mapValues, memoryOf, round, type Spread, spreadOf } from "../measure/process-usage.ts";
import { step } from "../measure/progress.ts";
import { AgentSources } from "./agent-sources.ts";
import { HEAP_KINDS, type HeapByOwner, heapByOwner, OwnedHeap } from "./heap-owners.ts";
import { HeapSnapshotReader } from "./heap-snapshot.ts";
import { Inspector, inspectable } from "./inspector.ts";
import { type AgentMemory, memoryTable, type OwnerFigures, sumOf } from "./memory-table.ts";
import { type MappedMemory, mappedMemoryOf } from "./smaps.ts";

/**
 * After the pods are ready: the agent's collection of garbage is over, and what it needs all the time is compiled
 * again.
 */
const SETTLE_MS = 60_000;
/** At the end of it. */
const SAMPLES = 5;
const SAMPLE_INTERVAL_MS = 2000;
/** Bounds the source files of the table; the rest is in their folders' sums. */
const MAX_FILES = 60;
/** While a snapshot is taken, an agent exceeds its budget and would restart. */
const CONFIG = { budget: { memoryBytes: "1Gi" } };

interface Spaces {
  readonly spaces: readonly HeapSpaceInfo[];
  readonly heap: { readonly malloced_memory: number; readonly external_memory: number };
  readonly usage: { readonly external: number; readonly arrayBuffers: number };
}

const SPACES = `(() => {
  const { getHeapSpaceStatistics, getHeapStatistics } = process.getBuiltinModule("v8");
  return { spaces: getHeapSpaceStatistics(), heap: getHeapStatistics(), usage: process.memoryUsage() };
})()`;
const SQLITE_PROTOTYPE = `process.mainModule.require("better-sqlite3").prototype`;
/** In the agent: bytes of pages that a database's cache may hold at most. */
const CACHES = `function () {
  return this.reduce((sum, database) => {
    if (!database.open) return sum;
  const [size, count, cache] = ["page_size", "page_count", "cache_size"].map((name) =>
    database.pragma(name, { simple: true }),
  );
    return sum + Math.min(size * count, cache < 0 ? -cache * 1024 : cache * size);
  }, 0);
}`;

/** Agents at rest, without and with a hub, in front of a containerd of their own. */
export class MemoryAgents implements AsyncDisposable {
  readonly #cases: readonly Case[];
  readonly #sources: AgentSources;
  readonly #started: AsyncDisposableStack;
  readonly #samples = new Map<Case, readonly MemoryFigures[]>();

  private constructor(cases: readonly Case[], sources: AgentSources, started: AsyncDisposableStack) {
    this.#cases = cases;
    this.#sources = sources;
    this.#started = started;
  }

  static async start({ podCounts }: { readonly podCounts: readonly number[] }): Promise<MemoryAgents> {
    await using started = new AsyncDisposableStack();
    const sources = await AgentSources.build();
    const containerd = started.use(await Containerd.start());
    const cases: Case[] = [];
    for (const withHub of [false, true]) {
      for (const pods of podCounts) cases.push(started.use(await startCase(containerd, pods, withHub)));
    }
    return new MemoryAgents(cases, sources, started.move());
  }

  /** Their memory at the end of the wait is sampled for its spread. */
  async settle(): Promise<void> {
    await delay(SETTLE_MS - SAMPLES * SAMPLE_INTERVAL_MS);
    for (let sample = 0; sample < SAMPLES; sample += 1) {
      await delay(SAMPLE_INTERVAL_MS);
      for (const each of this.#cases) {
        this.#samples.set(each, [...(this.#samples.get(each) ?? []), memoryOf(each.node.pid)]);
      }
    }
  }

  /** Takes the heap's snapshots, some seconds of CPU time each. */
  async figures(): Promise<Readonly<Record<string, AgentMemory & MemorySpread>>> {
    const figures: Record<string, AgentMemory & MemorySpread> = {};
    for (const each of this.#cases) {
      const { name, node } = each;
      const memory = await step(`memory of an agent: ${name}`, () => memoryOfAgent(node, this.#sources));
      process.stderr.write(`${memoryTable(name, memory)}\n`);
      const samples = this.#samples.get(each) ?? [];
      const spreadOfOne = (of: "anonMiB" | "rssMiB"): Spread =>
        spreadOf([...samples.map((sample) => sample[of]), memory[of]]);
      figures[name] = { ...memory, spread: { anonMiB: spreadOfOne("anonMiB"), rssMiB: spreadOfOne("rssMiB") } };
    }
    return figures;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#started.defer(async () => void (await Promise.all(this.#cases.map(({ drain }) => drain()))));
    await this.#started.disposeAsync();
  }
}

interface MemorySpread {
  readonly spread: Readonly<Record<"anonMiB" | "rssMiB", Spread>>;
}

interface Case extends AsyncDisposable {
  readonly name: string;
  readonly node: AgentNode;
  readonly drain: () => Promise<void>;
}

async function startCase(containerd: Containerd, pods: number, withHub: boolean): Promise<Case> {
  const name = `pods${pods}${withHub ? "WithHub" : ""}`;
  await using started = new AsyncDisposableStack();
  if (withHub) {
    const board = started.use(await inspectable(() => JoinedBoard.start(containerd, CONFIG)));
    await board.createPods(pods);
    started.move();
    return {
      name,
      node: board.node,
      drain: () => board.drain(),
      [Symbol.asyncDispose]: () => board[Symbol.asyncDispose](),
    };
  }
  const node = started.use(nodeWith(containerd, { config: CONFIG }));
  await inspectable(() => node.start());
  for (let index = 0; index < pods; index += 1) {
    const pod = `owned${index}-of-${pods}`;
    node.writeManifest(`${pod}.json`, containerPod(pod));
  }
  await node.waitForPods(`${pods} ready pods`, allReady(pods));
  started.move();
  return { name, node, drain: () => node.drain(), [Symbol.asyncDispose]: () => node[Symbol.asyncDispose]() };
}

async function memoryOfAgent(node: AgentNode, sources: AgentSources): Promise<AgentMemory> {
  const memory = memoryOf(node.pid);
  const mapped = mappedMemoryOf(node.pid);
  using inspector = await Inspector.open(node.pid, () => node.log);
  const statistics = await inspector.evaluate<Spaces>(SPACES);
  const sqliteBytes = await sqliteCaches(inspector);
  const heap = await heapOf(inspector, sources);
  const owned = withSharedTexts(heap.owned, sources);
  return {
    ...{ anonMiB: memory.anonMiB, rssMiB: memory.rssMiB },
    ...mappingsOf(mapped),
    heapMiB: heapSpaces(mapped, statistics, heap),
    mallocMiB: mallocOf(mapped, statistics, { sqliteBytes, nodeTextsKiB: heap.nodeTextsKiB }),
    filesMiB: sorted(mapValues(mapped.filesKiB, (kib) => round(kib / KIBIBYTE))),
    folders: figuresOf(byFolder(owned)),
    sourceFiles: figuresOf(owned, MAX_FILES),
  };
}

function mappingsOf({ anonKiB }: MappedMemory): Pick<AgentMemory, "mappingsMiB" | "attributedPercent"> {
  const sum = Object.values(anonKiB).reduce((all, kib) => all + kib, 0);
  return {
    mappingsMiB: mapValues(anonKiB, (kib) => round(kib / KIBIBYTE)),
    attributedPercent: round(100 * (1 - anonKiB["not attributed"] / sum)),
  };
}

/** What is used is V8's own count a moment after the mappings were read. */
function heapSpaces(mapped: MappedMemory, { spaces }: Spaces, { heapKiB }: HeapByOwner): Record<string, number> {
  const used: Record<string, number> = {};
  for (const { space_name, space_used_size } of spaces)
    if (space_used_size > 0) used[space_name] = round(space_used_size / MEBIBYTE);
  const usedMiB = Object.values(used).reduce((sum, mib) => sum + mib, 0);
  const pagesMiB = (mapped.anonKiB["V8 heap"] + mapped.anonKiB["V8 code"]) / KIBIBYTE;
  return {
    ...used,
    "free within its pages": round(pagesMiB - usedMiB),
    "of what is used: garbage": round(usedMiB - heapKiB / KIBIBYTE),
  };
}

function mallocOf(
  mapped: MappedMemory,
  { heap, usage }: Spaces,
  { sqliteBytes, nodeTextsKiB }: { readonly sqliteBytes: number; readonly nodeTextsKiB: number },
): Record<string, number> {
  const known = {
    "array buffers": round(usage.arrayBuffers / MEBIBYTE),
    "other external memory of V8's": round(
      Math.max(0, (usage.external - usage.arrayBuffers) / MEBIBYTE - nodeTextsKiB / KIBIBYTE),
    ),
    "V8's own": round(heap.malloced_memory / MEBIBYTE),
    "SQLite's page caches, at most": round(sqliteBytes / MEBIBYTE),
  };
  const allMiB = (mapped.anonKiB["malloc: brk"] + mapped.anonKiB["malloc: mapped"]) / KIBIBYTE;
  const knownMiB = Object.values(known).reduce((sum, mib) => sum + mib, 0);
  return { ...known, "of Node, OpenSSL, SQLite and what is freed": round(allMiB - knownMiB) };
}

async function sqliteCaches(inspector: Inspector): Promise<number> {
  const { result } = await inspector.call<Remote>("Runtime.evaluate", { expression: SQLITE_PROTOTYPE });
  const { objects } = await inspector.call<{ readonly objects: { readonly objectId: string } }>(
    "Runtime.queryObjects",
    {
      prototypeObjectId: result.objectId,
    },
  );
  const { result: sum } = await inspector.call<Remote>("Runtime.callFunctionOn", {
    ...{ objectId: objects.objectId, functionDeclaration: CACHES, returnByValue: true },
  });
  return Number(sum.value);
}

interface Remote {
  readonly result: { readonly objectId?: string; readonly value?: unknown };
}

async function heapOf(inspector: Inspector, sources: AgentSources): Promise<HeapByOwner> {
  const urls = new Map<number, string>();
  inspector.on<{ readonly scriptId: string; readonly url: string }>("Debugger.scriptParsed", ({ scriptId, url }) =>
    urls.set(Number(scriptId), url),
  );
  await inspector.call("Debugger.enable");
  const reader = new HeapSnapshotReader();
  inspector.on<{ readonly chunk: string }>("HeapProfiler.addHeapSnapshotChunk", ({ chunk }) => reader.push(chunk));
  await inspector.call("HeapProfiler.enable");
  await inspector.call("HeapProfiler.takeHeapSnapshot", { reportProgress: false, exposeInternals: true });
  return heapByOwner(reader.end(), { urls, sourceAt: (place) => sources.sourceAt(place) });
}

/** The text of a built file belongs to the sources in it. */
function withSharedTexts(owned: OwnedHeap, sources: AgentSources): OwnedHeap {
  const result = new OwnedHeap();
  for (const [owner, figures] of owned) {
    const shares = owner.startsWith("file dist/") ? sources.sharesOf(`${process.cwd()}/${owner.slice(5)}`) : new Map();
    for (const kind of HEAP_KINDS) {
      if (kind !== "source text" || shares.size === 0) result.add(owner, kind, figures[kind]);
      else for (const [source, share] of shares) result.add(source, kind, figures[kind] * share);
    }
  }
  return result;
}

function byFolder(owned: OwnedHeap): OwnedHeap {
  const folders = new OwnedHeap();
  for (const [owner, figures] of owned) {
    for (const kind of HEAP_KINDS) folders.add(folderOf(owner), kind, figures[kind]);
  }
  return folders;
}

/** `agent/tunnel`, `node_modules/zod`, `node:internal/crypto`. */
function folderOf(owner: string): string {
  if (owner.startsWith("(")) return owner;
  if (owner.startsWith("file "))
    return owner.startsWith("file dist/") ? "(whole built files of the agent)" : "(other files)";
  const parts = owner.split("/");
  const depth = parts[1]?.startsWith("@") ? 3 : 2;
  return parts.slice(0, Math.min(depth, Math.max(1, parts.length - 1))).join("/");
}

function figuresOf(owned: OwnedHeap, most = Number.POSITIVE_INFINITY): Record<string, OwnerFigures> {
  const all = [...owned].map(([owner, kib]): [string, OwnerFigures] => [
    owner,
    {
      ...{ codeKiB: Math.round(kib.code), sourceTextKiB: Math.round(kib["source text"]) },
      ...{ dataKiB: Math.round(kib.data), arrayBuffersKiB: Math.round(kib["array buffers"]) },
    },
  ]);
  const greatest = all
    .filter(([, each]) => sumOf(each) > 0)
    .toSorted(([, one], [, other]) => sumOf(other) - sumOf(one));
  return Object.fromEntries(greatest.slice(0, most));
}

const sorted = (record: Readonly<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(Object.entries(record).toSorted(([, one], [, other]) => other - one));

if (import.meta.main) {
  const [pods = "0", hub] = process.argv.slice(2);
  await using containerd = await Containerd.start();
  await using one = await startCase(containerd, Number(pods), hub === "hub");
  await delay(SETTLE_MS);
  const figures = await memoryOfAgent(one.node, await AgentSources.build());
  await one.drain();
  process.stderr.write(`${memoryTable(`${pods} pods`, figures)}\n`);
  console.log(JSON.stringify(figures, undefined, 2));
}
