/** A hub for one node: its desired set and the reports to it, with one session after the other. */

import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { digestOf, mirrorsDigest, statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes, toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { applyDelta } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import type {
  AgentMessage,
  FleetIdentity,
  Hello,
  HubMessage,
  MirrorItem,
  NodeReport,
  NodeReportContent,
  ObjectHash,
  ObjectKey,
  RemoteObject,
  Statuses,
  StatusItem,
  TunnelMessage,
  Welcome,
} from "@picolet/protocol/tunnel/messages.ts";
import { type Link, Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { RemoteHub } from "./remote-hub.ts";
import { sha256 } from "./tunnel-node.ts";

type Status = Readonly<Record<string, unknown>>;

/** Everything that outlives a session. */
export class TestHub {
  /** The desired set of this node. */
  readonly wanted = new RemoteHub();
  /** The last reported statuses by UID; `undefined`: gone. */
  readonly statuses = new Map<string, Status | undefined>();
  readonly events: string[] = [];
  report: NodeReportContent | undefined;
  mirrors: readonly MirrorItem[] = [];
  readonly hellos: Hello[] = [];
  readonly received: AgentMessage["kind"][] = [];
  /** How many bytes each kind of message took is the link's business; this is how often a status came in which form. */
  readonly bodies: string[] = [];
  readonly acknowledgedRevisions: number[] = [];
  sessions: HubSession[] = [];
  /** Digests told are wrong while it is set. */
  lies = false;
  /** The hub's answer; it takes no streams unless a test makes it. */
  takesTelemetry = false;
  /** With a fleet alone; what becomes of such statuses is up to `intercept`. */
  takesCompactStatuses = false;
  /** With a fleet alone; undefined: it wants none. */
  samplesEverySeconds: number | undefined;
  /** Undefined: an older hub, which says nothing of it. */
  fleet: FleetIdentity | undefined;
  /** Acknowledgements are kept back while it is set; `releaseAcks` sends them. */
  holdsAcks = false;
  /** Revisions that the journal still reaches, by the keys they changed. */
  readonly #journal = new Map<number, ObjectKey>();
  journalIsCut = false;
  readonly piece = 4;
  onStream: (incoming: IncomingStream) => void = (incoming) =>
    incoming.reject({ code: "unimplemented", message: "no streams here" });
  /** Seen before the hub itself; true: the hub does nothing with it. */
  intercept: (message: AgentMessage, session: HubSession) => boolean = () => false;

  get session(): HubSession | undefined {
    return this.sessions.at(-1);
  }

  accept(link: Link, ports: { readonly clock: Clock; readonly log: Log }): HubSession {
    const session = new HubSession(this, link, ports);
    this.sessions.push(session);
    return session;
  }

  get digest(): Uint8Array {
    const digest = digestOf(sha256, this.wanted.objects.values());
    return this.lies ? digest.map((byte) => byte ^ 1) : digest;
  }

  /** Wants `content` under `Pod/default/<name>`, and says so. */
  put(name: string, content: Status = {}): void {
    this.wanted.set(`Pod/default/${name}`, { metadata: { name, uid: `uid-${name}` }, ...content });
    this.#changed(`Pod/default/${name}`);
  }

  remove(name: string): void {
    this.wanted.removePod(name);
    this.#changed(`Pod/default/${name}`);
  }

  #changed(key: ObjectKey): void {
    this.#journal.set(this.wanted.revision, key);
    for (const session of this.sessions) session.tellChange(key);
  }

  /** Keys changed since `revision`, if the journal knows. */
  changedSince(revision: number): ReadonlySet<ObjectKey> | undefined {
    if (this.journalIsCut) return undefined;
    const keys = new Set<ObjectKey>();
    for (let each = revision + 1; each <= this.wanted.revision; each += 1) {
      const key = this.#journal.get(each);
      if (key === undefined) return undefined;
      keys.add(key);
    }
    return keys;
  }

  get mirrorsDigest(): Uint8Array {
    return mirrorsDigest(sha256, this.mirrors);
  }
}

export class HubSession {
  readonly #hub: TestHub;
  readonly mux: Mux;
  readonly #clock: Clock;
  #isFollowing = false;
  #inventory = new Map<ObjectKey, ObjectHash>();
  #mirrors: MirrorItem[] = [];
  #held: HubMessage[] = [];

  constructor(hub: TestHub, link: Link, { clock, log }: { readonly clock: Clock; readonly log: Log }) {
    this.#hub = hub;
    this.#clock = clock;
    this.mux = new Mux(
      { clock, log, link },
      {
        role: "hub",
        onMessage: (message) => this.#onMessage(message),
        onStream: (incoming) => hub.onStream(incoming),
      },
    );
  }

  send(message: HubMessage): void {
    if (!this.mux.closed.aborted) this.mux.send(message);
  }

  end(message = "the hub has ended it"): void {
    this.mux.close(new PicoletError("unavailable", message));
  }

  supersede(): void {
    const message = "another session of this node has begun";
    const farewell = { kind: "refusal", code: "superseded", message, retryAfterMs: 5000 } as const;
    this.mux.close(new PicoletError("unavailable", message), farewell);
  }

  releaseAcks(count = this.#held.length): void {
    for (const each of this.#held.splice(0, count)) this.send(each);
  }

  #ack(message: HubMessage): void {
    if (this.#hub.holdsAcks) this.#held.push(message);
    else this.send(message);
  }

  tellChange(key: ObjectKey): void {
    if (this.#isFollowing) this.#sendDesired(new Set([key]));
  }

  #onMessage(message: TunnelMessage): void {
    const hub = this.#hub;
    hub.received.push(message.kind as AgentMessage["kind"]);
    if (hub.intercept(message as AgentMessage, this)) return;
    switch (message.kind) {
      case "hello":
        hub.hellos.push(message);
        // One node has one session: the older one goes before the newer one is welcomed.
        for (const each of hub.sessions) if (each !== this) each.supersede();
        this.welcome(message);
        return;
      case "inventory":
        for (const { key, hash } of message.items) this.#inventory.set(key, hash);
        if (message.last) this.#answerInventory();
        return;
      case "desiredAck":
        hub.acknowledgedRevisions.push(message.revision);
        return;
      case "resync":
        this.#isFollowing = false;
        this.#inventory = new Map();
        this.send(this.#welcomeOf("inventory", false, false));
        return;
      case "statuses":
        this.#takeStatuses(message);
        return;
      case "events":
        hub.events.push(...message.items.map(({ id }) => id));
        this.#ack({ kind: "eventsAck", sequence: message.sequence });
        return;
      case "node":
        this.#takeReport(message);
        return;
      case "mirrors":
        this.#mirrors.push(...message.items);
        if (message.last) hub.mirrors = this.#mirrors.splice(0);
        return;
      default:
        return;
    }
  }

  welcome(hello: Hello): void {
    const hub = this.#hub;
    const { cursor } = hello;
    const isCurrent = equalBytes(cursor.digest, hub.digest);
    const changed = equalBytes(cursor.epoch, hub.wanted.epoch) ? hub.changedSince(cursor.revision) : undefined;
    const desired = isCurrent ? "current" : changed === undefined ? "inventory" : "delta";
    const wantsMirrors = !equalBytes(hello.mirrorsDigest, hub.mirrorsDigest);
    const wantsNode = hub.report === undefined || !equalBytes(statusHash(sha256, hub.report), hello.nodeHash);
    this.send(this.#welcomeOf(desired, wantsMirrors, wantsNode));
    this.#isFollowing = desired !== "inventory";
    if (desired === "delta" && changed !== undefined) this.#sendDesired(changed);
  }

  #welcomeOf(desired: Welcome["desired"], wantsMirrors: boolean, wantsNode: boolean): Welcome {
    const { epoch, revision } = this.#hub.wanted;
    const timeMs = this.#clock.wall().getTime();
    const { takesTelemetry, takesCompactStatuses, samplesEverySeconds, fleet } = this.#hub;
    const known = fleet === undefined ? {} : { fleet, takesCompactStatuses, samplesEverySeconds };
    const wants = { wantsMirrors, wantsNode, takesTelemetry, ...known };
    return { kind: "welcome", hubVersion: "0.1.0", epoch, revision, timeMs, desired, ...wants };
  }

  #answerInventory(): void {
    const { objects } = this.#hub.wanted;
    const keys = new Set([...this.#inventory.keys(), ...objects.keys()]);
    const differing = [...keys].filter((key) => {
      const [own, theirs] = [objects.get(key)?.hash, this.#inventory.get(key)];
      return own === undefined || theirs === undefined || !equalBytes(own, theirs);
    });
    this.#isFollowing = true;
    this.#sendDesired(new Set(differing));
  }

  /** In pieces of `piece` objects. */
  #sendDesired(keys: ReadonlySet<ObjectKey>): void {
    const { wanted, digest, piece } = this.#hub;
    const { revision } = wanted;
    const upserts: RemoteObject[] = [];
    const deletes: ObjectKey[] = [];
    for (const key of keys) {
      const object = wanted.objects.get(key);
      if (object === undefined) deletes.push(key);
      else upserts.push(object);
    }
    while (upserts.length > piece) {
      const some = upserts.splice(0, piece);
      this.send({ kind: "desired", revision, upserts: some, deletes: [], last: false, digest: new Uint8Array(0) });
    }
    this.send({ kind: "desired", revision, upserts, deletes, last: true, digest });
  }

  #takeStatuses({ sequence, items }: Statuses): void {
    const wantFull = items.filter((item) => !this.#takeStatus(item)).map(({ uid }) => uid);
    this.#ack({ kind: "statusesAck", sequence, wantFull });
  }

  #takeStatus({ name, uid, body }: StatusItem): boolean {
    const { statuses, bodies } = this.#hub;
    bodies.push(`${name} ${body.kind}`);
    if (body.kind !== "delta") {
      statuses.set(uid, body.kind === "gone" ? undefined : body.status);
      return true;
    }
    const base = statuses.get(uid);
    if (base === undefined || !equalBytes(statusHash(sha256, base), body.base)) return false;
    statuses.set(uid, applyDelta(base, body.delta) as Status);
    return true;
  }

  #takeReport({ hash, body }: NodeReport): void {
    const base = this.#hub.report;
    const fits = body.kind === "full" || (base !== undefined && equalBytes(statusHash(sha256, base), body.base));
    if (fits) {
      this.#hub.report = (body.kind === "full" ? body.report : applyDelta(base, body.delta)) as NodeReportContent;
    }
    this.#ack({ kind: "nodeAck", hash, wantFull: !fits });
  }
}

/** Both have the same, and the agent knows it. */
export function agrees(hub: TestHub, objects: ReadonlyMap<ObjectKey, RemoteObject>): boolean {
  return toHex(digestOf(sha256, objects.values())) === toHex(hub.digest);
}
