/**
 * The form of each message on the wire: an array that begins with the message's number, with its fields in the order of
 * PROTOCOL.md. A newer peer may add fields at the end of any of these arrays; they are passed over. Everything else
 * that is not as written there is refused with the name of the field.
 */
import { PicoletError } from "../errors.ts";
import { KIBIBYTE, MEBIBYTE } from "../units.ts";
import { MAX_REPORT_LENGTH } from "../updates/node-updates.ts";
import { COMPACT_KEY_BYTES, MAX_COMPACT_DELTA_BYTES } from "./compact-status.ts";
import { MAX_CSI_REPORT_LENGTH, MAX_EXPANDED_CLAIMS_LENGTH } from "./csi-report.ts";
import { MAX_DEVICES_LENGTH, MAX_DRA_DRIVERS_LENGTH } from "./device-report.ts";
import { ListReader } from "./encoding/list-reader.ts";
import { packJson, packText } from "./encoding/wire-json.ts";
import type {
  CompactStatus,
  EventItem,
  FleetIdentity,
  Inventory,
  MirrorItem,
  NodeReport,
  NodeReportContent,
  RemoteObject,
  StatusBody,
  Statuses,
  StatusItem,
  TunnelMessage,
  Welcome,
} from "./messages.ts";

/** Keys with hashes in one inventory: 256 of the longest (381 + 16 bytes) are 100 KiB, of usual ones 10 KiB. */
export const MAX_INVENTORY_ITEMS = 256;
/**
 * Statuses in one message, compact ones too; the rest follows in the next. A hub writes each by a request of its own.
 */
export const MAX_STATUS_ITEMS = 64;
/** Events in one message. */
export const MAX_EVENT_ITEMS = 64;
/** Pods in one piece of the mirror set. */
export const MAX_MIRROR_ITEMS = 64;
/**
 * Messages of statuses, and of events, that an agent may have sent without an ack. A hub holds them until they are in
 * the API server; an agent that sends more loses its session.
 */
export const MAX_IN_FLIGHT_MESSAGES = 8;
/**
 * To a hub that takes compact statuses. What it holds is bounded by the rate of a node's bytes (`MESSAGE_BYTES` of the
 * hub) all the same; with 8 the acknowledgements of small changes, one after another, could seldom wait.
 */
export const MAX_IN_FLIGHT_COMPACT_MESSAGES = 16;
/** UIDs in one ack: as many as statuses in flight. */
const MAX_WANT_FULL = MAX_IN_FLIGHT_COMPACT_MESSAGES * MAX_STATUS_ITEMS;
/** Objects, and keys of removed ones, in one piece of a revision. */
export const MAX_DESIRED_ITEMS = 1024;
/**
 * Bounds the pieces of a revision, because both ends hold a whole piece in memory. A larger object is a piece of its
 * own, up to MAX_MESSAGE_BYTES.
 */
export const MAX_DESIRED_BYTES = 65_536;
/**
 * Bounds all pieces of one revision together: more than 5,000 usual objects. An agent refuses a larger one with
 * `limit`.
 */
export const MAX_REVISION_BYTES = 16 * MEBIBYTE;
/** One message from a hub: an object as large as an API server stores it (1.5 MiB), with room for what is around it. */
export const MAX_HUB_MESSAGE_BYTES = 2 * MEBIBYTE;
/**
 * One message from an agent. Smaller, since a hub may hold one of each of thousands of agents: a mirror pod with all
 * the annotations that Kubernetes allows (256 KiB) fits.
 */
export const MAX_AGENT_MESSAGE_BYTES = 512 * KIBIBYTE;

/** Kind of 63, namespace of 63, name of 253 characters. */
const MAX_KEY = 381;
const MAX_NAME = 253;
const MAX_VERSION = 64;
/** UIDs are UUIDs, a static pod's is shorter; Kubernetes itself sets no limit. */
const MAX_UID = 128;
const MAX_CODE = 64;
/** A UUID has 36. */
const MAX_FLEET_ID = 64;
const FLEET_ID = /^[0-9A-Za-z.-]+$/;
/** Bounds the fleets that a hub took over; operators merge a few. */
export const MAX_FORMER_FLEETS = 16;
const MAX_REASON = 1024;
/** Kubernetes allows 1024 characters in an event's message, 128 in its reason. */
const MAX_EVENT_MESSAGE = 1024;
const MAX_EVENT_REASON = 128;
const MAX_FIELD_PATH = 512;
const MAX_PROVIDER_ID = 512;
const MAX_LABELS = 512;
const MAX_TAINTS = 64;

const EPOCH_BYTES = 8;
const DIGEST_BYTES = 16;
const SHORT_HASH_BYTES = 8;

/** The number of each kind. Numbers are never used again for something else. */
const NUMBER_OF: Readonly<Record<TunnelMessage["kind"], number>> = {
  hello: 0,
  welcome: 1,
  inventory: 2,
  desired: 3,
  desiredAck: 4,
  resync: 5,
  statuses: 6,
  statusesAck: 7,
  events: 8,
  eventsAck: 9,
  node: 10,
  nodeAck: 11,
  mirrors: 12,
  drain: 13,
  refusal: 14,
};
/** The kinds of messages; the place of a kind is its number on the wire. */
export const MESSAGE_KINDS = Object.keys(NUMBER_OF) as readonly TunnelMessage["kind"][];
const KIND_OF: ReadonlyMap<number, TunnelMessage["kind"]> = new Map(
  (Object.keys(NUMBER_OF) as TunnelMessage["kind"][]).map((kind) => [NUMBER_OF[kind], kind]),
);

const DESIRED_MODES: readonly Welcome["desired"][] = ["current", "delta", "inventory"];
const EVENT_TYPES: readonly EventItem["type"][] = ["Normal", "Warning"];
const BODY_FULL = 0;
const BODY_DELTA = 1;
const BODY_GONE = 2;

/** Makes the value for `encodeCbor`: `[number, …fields]`. */
export const packMessage = (message: TunnelMessage): unknown[] => [NUMBER_OF[message.kind], ...fieldsOf(message)];

function fieldsOf(message: TunnelMessage): unknown[] {
  switch (message.kind) {
    case "hello": {
      const { agentVersion, cursor, mirrorsDigest, nodeHash, timeMs, pendingStatuses } = message;
      const { epoch, revision, digest } = cursor;
      return [agentVersion, epoch, revision, digest, mirrorsDigest, nodeHash, timeMs, pendingStatuses];
    }
    case "welcome": {
      const { hubVersion, epoch, revision, timeMs, desired, wantsMirrors, wantsNode, takesTelemetry } = message;
      const { fleet, takesCompactStatuses, samplesEverySeconds } = message;
      const fields = [hubVersion, epoch, revision, timeMs, DESIRED_MODES.indexOf(desired), wantsMirrors, wantsNode];
      if (fleet !== undefined) {
        const known = [...fields, takesTelemetry, packText(fleet.id), fleet.former.map(packText)];
        if (samplesEverySeconds !== undefined) return [...known, takesCompactStatuses === true, samplesEverySeconds];
        return takesCompactStatuses === true ? [...known, true] : known;
      }
      return takesTelemetry ? [...fields, true] : fields;
    }
    case "inventory":
      return [message.items.flatMap(({ key, hash }) => [key, hash]), message.last];
    case "desired": {
      const { revision, upserts, deletes, last, digest } = message;
      return [revision, last, digest, deletes, upserts.flatMap(packObject)];
    }
    case "desiredAck":
      return [message.revision];
    case "resync":
      return [];
    case "statuses":
      return [message.sequence, message.items.map(packStatus), ...packStatusTail(message)];
    case "statusesAck":
      return message.wantFull.length === 0 ? [message.sequence] : [message.sequence, message.wantFull.map(packText)];
    case "events":
      return [message.sequence, message.items.map(packEvent), ...(message.ackMayWait === true ? [true] : [])];
    case "eventsAck":
      return [message.sequence];
    case "node":
      return [message.hash, ...packNodeBody(message.body)];
    case "nodeAck":
      return message.wantFull ? [message.hash, true] : [message.hash];
    case "mirrors":
      return [message.items.map(packMirror), message.last];
    case "drain":
      return [message.reconnectAfterMs, message.reason];
    case "refusal":
      return [message.code, message.message, message.retryAfterMs];
  }
}

const packObject = ({ key, hash, object }: RemoteObject): unknown[] => [key, hash, packJson(object)];

const packStatus = ({ namespace, name, uid, body }: StatusItem): unknown[] => [
  packText(namespace),
  name,
  packText(uid),
  ...packStatusBody(body),
];

function packStatusTail({ ackMayWait = false, compact = [] }: Statuses): unknown[] {
  if (compact.length > 0) return [ackMayWait, compact.flatMap(({ key, delta }) => [key, delta])];
  return ackMayWait ? [true] : [];
}

function packStatusBody(body: StatusBody): unknown[] {
  switch (body.kind) {
    case "full":
      return [BODY_FULL, packJson(body.status)];
    case "delta":
      return [BODY_DELTA, body.base, packJson(body.delta)];
    case "gone":
      return [BODY_GONE, packJson(body.status)];
  }
}

const packEvent = ({ id, regarding, type, reason, message, count, firstAtMs, lastAtMs }: EventItem): unknown[] => [
  packText(id),
  [regarding.kind, regarding.namespace, regarding.name, regarding.uid].map(packText),
  regarding.fieldPath,
  EVENT_TYPES.indexOf(type),
  packText(reason),
  packText(message),
  count,
  firstAtMs,
  lastAtMs - firstAtMs,
];

const packNodeBody = (body: NodeReport["body"]): unknown[] =>
  body.kind === "full" ? [BODY_FULL, packJson(body.report)] : [BODY_DELTA, body.base, packJson(body.delta)];

const packMirror = ({ namespace, name, uid, source, pod }: MirrorItem): unknown[] => [
  packText(namespace),
  name,
  packText(uid),
  source,
  packJson(pod),
];

/**
 * @param packed what `decodeCbor` gave; nothing of the result points into it
 * @throws `invalid`, naming the message and the field
 */
export function unpackMessage(packed: unknown): TunnelMessage {
  const number = Array.isArray(packed) ? packed[0] : undefined;
  const kind = typeof number === "number" ? KIND_OF.get(number) : undefined;
  if (!Array.isArray(packed) || kind === undefined) {
    throw new PicoletError("invalid", `cannot read message: its kind ${String(number).slice(0, MAX_CODE)} is unknown`);
  }
  return readMessage(kind, new ListReader(kind, packed, 1));
}

function readMessage(kind: TunnelMessage["kind"], fields: ListReader): TunnelMessage {
  switch (kind) {
    case "hello":
      return {
        kind,
        agentVersion: fields.text("agentVersion", MAX_VERSION),
        cursor: {
          epoch: fields.bytesOrNone("cursor.epoch", EPOCH_BYTES),
          revision: fields.count("cursor.revision"),
          digest: fields.bytes("cursor.digest", DIGEST_BYTES),
        },
        mirrorsDigest: fields.bytes("mirrorsDigest", SHORT_HASH_BYTES),
        nodeHash: fields.bytesOrNone("nodeHash", SHORT_HASH_BYTES),
        timeMs: fields.count("timeMs"),
        pendingStatuses: fields.count("pendingStatuses"),
      };
    case "welcome":
      return {
        kind,
        hubVersion: fields.text("hubVersion", MAX_VERSION),
        epoch: fields.bytes("epoch", EPOCH_BYTES),
        revision: fields.count("revision"),
        timeMs: fields.count("timeMs"),
        desired: fields.oneOf("desired", DESIRED_MODES),
        wantsMirrors: fields.flag("wantsMirrors"),
        wantsNode: fields.flag("wantsNode"),
        takesTelemetry: fields.isAtEnd ? false : fields.flag("takesTelemetry"),
        ...(fields.isAtEnd ? {} : { fleet: readFleet(fields) }),
        ...(fields.isAtEnd ? {} : { takesCompactStatuses: fields.flag("takesCompactStatuses") }),
        ...(fields.isAtEnd ? {} : { samplesEverySeconds: fields.count("samplesEverySeconds") }),
      };
    case "inventory":
      return { kind, items: readInventoryItems(fields), last: fields.flag("last") };
    case "desired":
      return readDesired(fields);
    case "desiredAck":
      return { kind, revision: fields.count("revision") };
    case "resync":
      return { kind };
    case "statuses":
      return readStatuses(fields);
    case "statusesAck":
      return {
        kind,
        sequence: fields.count("sequence"),
        wantFull: fields.isAtEnd ? [] : fields.texts("wantFull", MAX_WANT_FULL, MAX_UID),
      };
    case "events":
      return {
        kind,
        sequence: fields.count("sequence"),
        items: fields.lists("items", MAX_EVENT_ITEMS).map(readEvent),
        ...(fields.isAtEnd ? {} : { ackMayWait: fields.flag("ackMayWait") }),
      };
    case "eventsAck":
      return { kind, sequence: fields.count("sequence") };
    case "node":
      return { kind, hash: fields.bytes("hash", SHORT_HASH_BYTES), body: readNodeBody(fields) };
    case "nodeAck":
      return {
        kind,
        hash: fields.bytes("hash", SHORT_HASH_BYTES),
        wantFull: fields.isAtEnd ? false : fields.flag("wantFull"),
      };
    case "mirrors":
      return { kind, items: fields.lists("items", MAX_MIRROR_ITEMS).map(readMirror), last: fields.flag("last") };
    case "drain":
      return { kind, reconnectAfterMs: fields.count("reconnectAfterMs"), reason: fields.text("reason", MAX_REASON) };
    case "refusal":
      return {
        kind,
        code: fields.text("code", MAX_CODE),
        message: fields.text("message", MAX_REASON),
        retryAfterMs: fields.count("retryAfterMs"),
      };
  }
}

function readFleet(fields: ListReader): FleetIdentity {
  const id = fields.text("fleet", MAX_FLEET_ID);
  const former = fields.texts("formerFleets", MAX_FORMER_FLEETS, MAX_FLEET_ID);
  // It is shown to people, on terminals too.
  if (![id, ...former].every((each) => FLEET_ID.test(each))) throw fields.wrong("fleet", "is no id of a fleet");
  return { id, former };
}

function readInventoryItems(fields: ListReader): Inventory["items"] {
  const flat = fields.list("items", 2 * MAX_INVENTORY_ITEMS);
  const items: Inventory["items"][number][] = [];
  while (!flat.isAtEnd) items.push({ key: flat.text("key", MAX_KEY), hash: flat.bytes("hash", DIGEST_BYTES) });
  return items;
}

function readDesired(fields: ListReader): TunnelMessage {
  const revision = fields.count("revision");
  const last = fields.flag("last");
  const digest = last ? fields.bytes("digest", DIGEST_BYTES) : fields.bytesOrNone("digest", DIGEST_BYTES);
  const deletes = fields.texts("deletes", MAX_DESIRED_ITEMS, MAX_KEY);
  const flat = fields.list("upserts", 3 * MAX_DESIRED_ITEMS);
  const upserts: RemoteObject[] = [];
  while (!flat.isAtEnd) {
    upserts.push({
      key: flat.text("key", MAX_KEY),
      hash: flat.bytes("hash", DIGEST_BYTES),
      object: flat.object("object"),
    });
  }
  return { kind: "desired", revision, upserts, deletes, last, digest };
}

function readStatuses(fields: ListReader): Statuses {
  const sequence = fields.count("sequence");
  const items = fields.lists("items", MAX_STATUS_ITEMS).map(readStatus);
  const ackMayWait = fields.isAtEnd ? {} : { ackMayWait: fields.flag("ackMayWait") };
  if (fields.isAtEnd) return { kind: "statuses", sequence, items, ...ackMayWait };
  const flat = fields.list("compact", 2 * (MAX_STATUS_ITEMS - items.length));
  const compact: CompactStatus[] = [];
  while (!flat.isAtEnd) {
    const key = flat.bytes("key", COMPACT_KEY_BYTES);
    compact.push({ key, delta: Uint8Array.from(flat.view("delta", MAX_COMPACT_DELTA_BYTES)) });
  }
  return { kind: "statuses", sequence, items, ...ackMayWait, compact };
}

function readStatus(fields: ListReader): StatusItem {
  const who = { namespace: fields.name("namespace"), name: fields.name("name"), uid: fields.uid("uid", MAX_UID) };
  const form = fields.count("body");
  switch (form) {
    case BODY_FULL:
      return { ...who, body: { kind: "full", status: fields.object("status") } };
    case BODY_DELTA:
      return {
        ...who,
        body: { kind: "delta", base: fields.bytes("base", SHORT_HASH_BYTES), delta: fields.json("delta") },
      };
    case BODY_GONE:
      return { ...who, body: { kind: "gone", status: fields.object("status") } };
    default:
      throw fields.wrong("body", "is no known form of a status");
  }
}

function readEvent(fields: ListReader): EventItem {
  const id = fields.name("id");
  const about = fields.list("regarding", 4);
  const regarding = {
    kind: about.text("kind", MAX_NAME),
    namespace: about.nameOrNone("namespace"),
    name: about.name("name"),
    uid: about.text("uid", MAX_UID),
    fieldPath: fields.text("regarding.fieldPath", MAX_FIELD_PATH),
  };
  const type = fields.oneOf("type", EVENT_TYPES);
  const reason = fields.text("reason", MAX_EVENT_REASON);
  const message = fields.text("message", MAX_EVENT_MESSAGE);
  const count = fields.count("count");
  const firstAtMs = fields.count("firstAtMs");
  return { id, regarding, type, reason, message, count, firstAtMs, lastAtMs: firstAtMs + fields.integer("lastAtMs") };
}

function readNodeBody(fields: ListReader): NodeReport["body"] {
  const form = fields.count("body");
  if (form === BODY_FULL) return { kind: "full", report: parseNodeReport(fields.json("report")) };
  if (form !== BODY_DELTA) throw fields.wrong("body", "is no known form of a report");
  return { kind: "delta", base: fields.bytes("base", SHORT_HASH_BYTES), delta: fields.json("delta") };
}

const readMirror = (fields: ListReader): MirrorItem => ({
  namespace: fields.name("namespace"),
  name: fields.name("name"),
  uid: fields.uid("uid", MAX_UID),
  source: fields.text("source", MAX_CODE),
  pod: fields.object("pod"),
});

/**
 * Reads a full report, or the result of a delta on the previous one.
 * @throws `invalid`, naming the field
 */
export function parseNodeReport(value: unknown): NodeReportContent {
  const wrong = (what: string): PicoletError => new PicoletError("invalid", `cannot read node report: ${what}`);
  if (!isFields(value)) throw wrong("it is no object");
  const { register, labels, taints, providerID, status, updates, csi, expandedClaims, draDrivers, devices } = value;
  if (typeof register !== "boolean") throw wrong("register: is neither true nor false");
  if (!isFields(labels) || !isStringMap(labels)) throw wrong(`labels: is not a map of at most ${MAX_LABELS} texts`);
  if (!Array.isArray(taints) || taints.length > MAX_TAINTS || !taints.every(isTaint)) {
    throw wrong(`taints: is not a list of at most ${MAX_TAINTS} taints`);
  }
  if (typeof providerID !== "string" || providerID.length > MAX_PROVIDER_ID) {
    throw wrong(`providerID: is not a text of at most ${MAX_PROVIDER_ID} characters`);
  }
  if (!isFields(status)) throw wrong("status: is no object");
  const isAtMost = (text: unknown, most: number): boolean =>
    text === undefined || (typeof text === "string" && text.length <= most);
  if (!isAtMost(updates, MAX_REPORT_LENGTH))
    throw wrong(`updates: is not a text of at most ${MAX_REPORT_LENGTH} characters`);
  if (!isAtMost(csi, MAX_CSI_REPORT_LENGTH))
    throw wrong(`csi: is not a text of at most ${MAX_CSI_REPORT_LENGTH} characters`);
  if (!isAtMost(expandedClaims, MAX_EXPANDED_CLAIMS_LENGTH))
    throw wrong(`expandedClaims: is not a text of at most ${MAX_EXPANDED_CLAIMS_LENGTH} characters`);
  if (!isAtMost(draDrivers, MAX_DRA_DRIVERS_LENGTH))
    throw wrong(`draDrivers: is not a text of at most ${MAX_DRA_DRIVERS_LENGTH} characters`);
  if (!isAtMost(devices, MAX_DEVICES_LENGTH))
    throw wrong(`devices: is not a text of at most ${MAX_DEVICES_LENGTH} characters`);
  return {
    ...{ register, labels, taints, providerID, status },
    ...(updates === undefined ? {} : { updates: updates as string }),
    ...(csi === undefined ? {} : { csi: csi as string }),
    ...(expandedClaims === undefined ? {} : { expandedClaims: expandedClaims as string }),
    ...(draDrivers === undefined ? {} : { draDrivers: draDrivers as string }),
    ...(devices === undefined ? {} : { devices: devices as string }),
  };
}

const isFields = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isStringMap = (value: Record<string, unknown>): value is Record<string, string> =>
  Object.keys(value).length <= MAX_LABELS && Object.values(value).every((each) => typeof each === "string");

const isTaint = (value: unknown): value is NodeReportContent["taints"][number] =>
  isFields(value) &&
  typeof value.key === "string" &&
  typeof value.effect === "string" &&
  (value.value === undefined || typeof value.value === "string");
