/** A node's state for its tunnel, in memory: `NodeDisk` outlives a restart of the agent, `TunnelNodePorts` does not. */
import { hash } from "node:crypto";
import type { IdentityState, NodeCredentials, NodeIdentity } from "@picolet/agent/core/hub/identity.ts";
import type { OutgoingTelemetry, SampleSource } from "@picolet/agent/core/hub/outgoing-telemetry.ts";
import type {
  KnownFleet,
  MirrorSet,
  OutgoingEvents,
  OutgoingStatus,
  OutgoingStatuses,
  RemoteObjects,
  TunnelPorts,
} from "@picolet/agent/core/hub/tunnel-ports.ts";
import type { RemoteChange, Sequenced } from "@picolet/agent/core/store/store-ports.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { digestOf, EMPTY_DIGEST, mirrorsDigest } from "@picolet/protocol/tunnel/digest.ts";
import type {
  Cursor,
  EventItem,
  MirrorItem,
  NodeReportContent,
  ObjectKey,
  RemoteObject,
} from "@picolet/protocol/tunnel/messages.ts";

export const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");

export const NODE_REPORT: NodeReportContent = {
  register: true,
  labels: { "kubernetes.io/hostname": "edge-1" },
  taints: [],
  providerID: "",
  status: { capacity: { cpu: "4", memory: "947272Ki" }, conditions: [{ type: "Ready", status: "True" }] },
};

/** What is on disk. */
export class NodeDisk {
  cursor: Cursor = { epoch: new Uint8Array(0), revision: 0, digest: EMPTY_DIGEST };
  readonly objects = new Map<ObjectKey, RemoteObject>();
  readonly statuses = new Map<string, Sequenced<OutgoingStatus>>();
  statusSequence = 0;
  /** Every status that was ever put, in order. */
  readonly told: Sequenced<OutgoingStatus>[] = [];
  events: Sequenced<EventItem>[] = [];
  eventSequence = 0;
  /** Every change that was applied, in order. */
  readonly applied: RemoteChange[] = [];
  /** Changes with everything that was applied, confirmed or acknowledged. */
  readonly progress = new WatchSource(0);
  isFull = false;
  /** Must be loaded before a change can be applied. */
  loading: Promise<void> | undefined;
  fleet = "";

  moved(): void {
    this.progress.set(this.progress.current + 1);
  }
}

export class TunnelNodePorts implements TunnelPorts {
  readonly #disk: NodeDisk;
  readonly fleet: KnownFleet;
  readonly objects: RemoteObjects & { readonly confirmed: Cursor[] };
  readonly statuses: OutgoingStatuses;
  readonly events: OutgoingEvents;
  readonly mirrors = new WatchSource<MirrorSet>({ current: [], digest: mirrorsDigest(sha256, []) });
  readonly report = new WatchSource<NodeReportContent>(NODE_REPORT);
  /** How often a session has begun. */
  sessions = 0;
  telemetry?: OutgoingTelemetry;
  samples?: SampleSource;
  readonly #latestStatus: WatchSource<number>;
  readonly #latestEvent: WatchSource<number>;

  constructor(disk: NodeDisk) {
    this.#disk = disk;
    this.fleet = {
      get id() {
        return disk.fleet;
      },
      set: (id) => {
        disk.fleet = id;
      },
    };
    this.objects = objectsOf(disk);
    this.#latestStatus = new WatchSource(disk.statusSequence);
    this.#latestEvent = new WatchSource(disk.eventSequence);
    const latestStatus = this.#latestStatus;
    this.statuses = {
      latest: latestStatus,
      pending: (limit) =>
        [...disk.statuses.values()].sort((one, other) => one.sequence - other.sequence).slice(0, limit),
      pendingCount: () => disk.statuses.size,
      ack: (sequence, except) => {
        for (const [uid, row] of disk.statuses) {
          if (row.sequence <= sequence && !except.has(uid)) disk.statuses.delete(uid);
        }
        disk.moved();
      },
      repeat: (uids) => {
        const told = new Map(disk.told.map(({ value }) => [value.uid, value]));
        for (const { name, status, gone, uid } of told.values()) {
          if (uids.has(uid) && !gone && !disk.statuses.has(uid)) this.putStatus(name, status, false, uid);
        }
      },
      repeatGone: () => {
        this.sessions += 1;
      },
    };
    this.events = {
      latest: this.#latestEvent,
      pending: (limit) => disk.events.slice(0, limit),
      ack: (sequence) => {
        disk.events = disk.events.filter((each) => each.sequence > sequence);
      },
    };
  }

  putStatus(name: string, status: Readonly<Record<string, unknown>>, gone = false, uid = `uid-${name}`): void {
    this.#disk.statusSequence += 1;
    const value = { namespace: "default", name, uid, status, gone };
    this.#disk.statuses.delete(uid);
    this.#disk.statuses.set(uid, { sequence: this.#disk.statusSequence, value });
    this.#disk.told.push({ sequence: this.#disk.statusSequence, value });
    this.#latestStatus.set(this.#disk.statusSequence);
  }

  putEvent(reason: string): void {
    this.#disk.eventSequence += 1;
    const sequence = this.#disk.eventSequence;
    const regarding = { kind: "Node", namespace: "", name: "edge-1", uid: "edge-1", fieldPath: "" };
    const times = { count: 1, firstAtMs: 1000 * sequence, lastAtMs: 1000 * sequence };
    const value: EventItem = { id: `event-${sequence}`, regarding, type: "Normal", reason, message: reason, ...times };
    this.#disk.events.push({ sequence, value });
    this.#latestEvent.set(sequence);
  }

  putMirrors(...current: readonly MirrorItem[]): void {
    this.mirrors.set({ current, digest: mirrorsDigest(sha256, current) });
  }
}

function objectsOf(disk: NodeDisk): RemoteObjects & { readonly confirmed: Cursor[] } {
  const after = ({ upserts, deletes }: Omit<RemoteChange, "cursor">): Map<ObjectKey, RemoteObject> => {
    const next = new Map(disk.objects);
    for (const key of deletes) next.delete(key);
    for (const each of upserts) next.set(each.key, each);
    return next;
  };
  const changes = new WatchSource(0);
  const confirmed: Cursor[] = [];
  return {
    confirmed,
    changes,
    get cursor(): Cursor {
      return disk.cursor;
    },
    inventory: () => disk.objects.values(),
    digestAfter: (change) => digestOf(sha256, after(change).values()),
    apply: (change) => {
      if (disk.isFull) throw new PicoletError("resource_exhausted", "cannot write: the disk is full");
      const next = after(change);
      disk.objects.clear();
      for (const [key, each] of next) disk.objects.set(key, each);
      disk.cursor = change.cursor;
      disk.applied.push(change);
      changes.set(changes.current + 1);
      disk.moved();
    },
    ready: () => disk.loading,
    confirm: (cursor) => {
      confirmed.push(cursor);
      disk.moved();
    },
    object: (key) => disk.objects.get(key)?.object,
  };
}

export const CREDENTIALS: NodeCredentials = {
  privateKey: "key",
  certificateChain: "certificate",
  hubCa: "ca",
  notBeforeMs: 0,
  notAfterMs: Date.UTC(9999, 0),
};

/** Remembers its calls. */
export class RecordedIdentity implements NodeIdentity {
  readonly state: WatchSource<IdentityState>;
  readonly calls: string[] = [];
  /** Throws for a peer that is not the hub; set by a test. */
  onVerify: (chain: readonly Uint8Array[], host: string) => void = () => undefined;
  onWorked: () => void = () => undefined;
  onRefused: (credentials: NodeCredentials) => void = () => undefined;

  constructor(credentials: NodeCredentials | "joining" = CREDENTIALS) {
    this.state = new WatchSource<IdentityState>(
      credentials === "joining" ? { kind: "joining", problem: "", isRefused: false } : { kind: "joined", credentials },
    );
  }

  join(credentials: NodeCredentials = CREDENTIALS): void {
    this.state.set({ kind: "joined", credentials });
  }

  tlsOptions(credentials: NodeCredentials, host: string): ReturnType<NodeIdentity["tlsOptions"]> {
    const { hubCa: ca, certificateChain: cert, privateKey: key } = credentials;
    return { ca, cert, key, rejectUnauthorized: true, servername: host === "127.0.0.1" ? "localhost" : host };
  }

  verify(chain: readonly Uint8Array[], host: string): void {
    this.calls.push(`verify ${chain.length} ${host}`);
    this.onVerify(chain, host);
  }

  worked({ certificateChain }: NodeCredentials): void {
    this.calls.push(`worked ${certificateChain.slice(0, 20)}`);
    this.onWorked();
  }

  refused(credentials: NodeCredentials, reason: string): void {
    this.calls.push(`refused ${reason}`);
    this.onRefused(credentials);
  }

  observeTime(hubTimeMs: number, roundTripMs: number): void {
    this.calls.push(`time ${hubTimeMs} ${Math.round(roundTripMs)}`);
  }
}
