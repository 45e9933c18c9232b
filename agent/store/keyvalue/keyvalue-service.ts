/** `keyvalue` of `wit/board`, at the agent's end: who may use which bucket, and what each of its functions does. */
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import {
  type BoardService,
  type BucketGrant,
  type Plain,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import type { KeyvalueBuckets } from "../../core/store/keyvalue-buckets.ts";
import type { Bucket, BucketTables } from "./bucket-tables.ts";
import { GroupCommit } from "./group-commit.ts";
import { KeyvalueFile } from "./keyvalue-file.ts";
import {
  bucketName,
  checkTogether,
  cursorOf,
  deltaOf,
  fieldsOf,
  keyOf,
  keysOf,
  stateOf,
  stateText,
  valueAt,
} from "./requests.ts";

export interface KeyvalueServiceComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Pods that are wanted and name the bucket: it is kept then. */
  readonly namedBy: (namespace: string, bucket: string) => readonly NamedBucket[];
  /** False: the wall clock may be wrong by years. */
  readonly isClockSet: () => boolean;
  /** Called when a damaged file was set aside: components have lost its contents. */
  readonly onDamage: (reason: string, setAside: string) => void;
}

export interface NamedBucket {
  /** The pod's name. */
  readonly pod: string;
  readonly grant: BucketGrant;
}

export interface KeyvalueServiceInit {
  /** Absolute. */
  readonly path: string;
  /** Bounds the file; default 64 MiB. */
  readonly maxBytes?: number;
}

/** The store counts in them. */
export const DAY_MS = 86_400_000;
/** A bucket that no pod has named for this time is dropped. A pod that is off for a season still finds its settings. */
const KEPT_DAYS = 90;

const plain = (value: Plain, bytes: readonly Uint8Array[] = []): ServiceMessage => ({ value, bytes });

interface Call {
  readonly bucket: Bucket;
  readonly grant: BucketGrant;
  readonly message: ServiceMessage;
  readonly fields: ReturnType<typeof fieldsOf>;
}

export class KeyvalueService implements BoardService, Disposable {
  /** Not `swap`, which has a value for an answer only if it was refused: it waits for the disk. */
  readonly largeAnswers: ReadonlySet<string> = new Set(["get", "list", "observe", "get-many"]);
  readonly #components: KeyvalueServiceComponents;
  readonly #file: KeyvalueFile;
  readonly #commits: GroupCommit;
  readonly #disposed = new AbortController();
  #sweptOnDay = 0;

  constructor(components: KeyvalueServiceComponents, { path, maxBytes }: KeyvalueServiceInit) {
    const { clock, onDamage } = components;
    this.#components = components;
    this.#file = new KeyvalueFile({ path, maxBytes, onDamage, now: () => clock.wall() });
    this.#commits = new GroupCommit(clock, this.#file, this.#disposed.signal);
  }

  /** @param factor 1 or more: changes wait that much longer for others that go to the disk with them. */
  stretch(factor: number): void {
    this.#commits.stretch(factor);
  }

  /** Gives memory back that makes reading faster. */
  shed(): void {
    this.#file.shrink();
  }

  [Symbol.dispose](): void {
    this.#disposed.abort();
    this.#commits.flush();
    this.#file[Symbol.dispose]();
  }

  /** The buckets for the node's administrator. */
  async administration(): Promise<KeyvalueBuckets> {
    const { KeyvalueAdministration } = await import("./keyvalue-administration.ts");
    const { log, namedBy } = this.#components;
    return new KeyvalueAdministration({
      ...{ log, namedBy, file: this.#file, commits: this.#commits },
      today: () => this.#today(),
    });
  }

  async call(peer: ServicePeer, method: string, message: ServiceMessage): Promise<ServiceMessage> {
    const fields = fieldsOf(message);
    const name = bucketName(fields);
    const grant = peer.buckets.find((each) => each.name === name);
    if (grant === undefined) throw new ServiceRefusal("no-such-bucket");
    const bucket = await this.#bucket(peer.pod.namespace, name);
    const call = { bucket, grant, message, fields };
    return this.#read(method, call) ?? this.#change(method, call);
  }

  /** Undefined for what changes something. */
  #read(method: string, { bucket: { id }, fields }: Call): ServiceMessage | undefined {
    switch (method) {
      case "open":
        return plain(null);
      case "get": {
        const value = this.#file.read((tables) => tables.get(id, keyOf(fields.key)));
        return plain(value !== undefined, value === undefined ? [] : [value]);
      }
      case "exists":
        return plain(this.#file.read((tables) => tables.exists(id, keyOf(fields.key))));
      case "list": {
        const { keys, next } = this.#file.read((tables) => tables.list(id, cursorOf(fields)));
        return plain(next === undefined ? { keys } : { keys, cursor: String(next) });
      }
      case "observe": {
        const [key, isWhole] = [keyOf(fields.key), fields.whole === true];
        return this.#file.read((tables) => {
          const value = isWhole ? tables.get(id, key) : undefined;
          return plain({ state: stateText(tables.stateOf(id, key)) }, value === undefined ? [] : [value]);
        });
      }
      case "get-many": {
        const values = this.#file.read((tables) => this.#many(tables, id, keysOf(fields)));
        const found = values.filter((each) => each !== undefined);
        return plain(
          values.map((each) => each !== undefined),
          found,
        );
      }
    }
    return undefined;
  }

  /** Stops as soon as it is too much: the keys may be of a thousand values of a mebibyte. */
  #many(tables: BucketTables, bucket: number, keys: readonly string[]): (Buffer | undefined)[] {
    const values: (Buffer | undefined)[] = [];
    for (const key of keys) {
      values.push(tables.get(bucket, key));
      checkTogether(values);
    }
    return values;
  }

  async #change(method: string, call: Call): Promise<ServiceMessage> {
    const { bucket, grant, message, fields } = call;
    const submit = <R>(work: (tables: BucketTables, id: number) => R): Promise<R> =>
      this.#commits.submit((tables) => work(tables, tables.current(bucket)));
    switch (method) {
      case "set": {
        const entry = { key: keyOf(fields.key), value: valueAt(message) };
        await submit((tables, id) => tables.set(id, [entry], grant));
        return plain(null);
      }
      case "set-many": {
        const entries = keysOf(fields).map((key, index) => ({ key, value: valueAt(message, index) }));
        checkTogether(entries.map(({ value }) => value));
        await submit((tables, id) => tables.set(id, entries, grant));
        return plain(null);
      }
      case "delete":
      case "delete-many": {
        const keys = method === "delete" ? [keyOf(fields.key)] : keysOf(fields);
        await submit((tables, id) => tables.delete(id, keys));
        return plain(null);
      }
      case "increment": {
        const [key, delta] = [keyOf(fields.key), deltaOf(fields)];
        return plain(String(await submit((tables, id) => tables.increment(id, key, delta, grant))));
      }
      case "swap": {
        const entry = { key: keyOf(fields.key), value: valueAt(message) };
        const expected = message.bytes.length > 1 ? valueAt(message, 1) : undefined;
        const found = await submit((tables, id) => tables.swap(id, entry, expected, grant));
        return typeof found === "string" ? plain(found) : plain("value", [found]);
      }
      case "swap-observed": {
        const [entry, state] = [{ key: keyOf(fields.key), value: valueAt(message) }, stateOf(fields)];
        const found = await submit((tables, id) => tables.swapObserved(id, entry, state, grant));
        if (found === "swapped") return plain(found);
        return plain({ state: found === "nothing" ? null : stateText(found) });
      }
    }
    // A runner of another version, or none of ours.
    throw new ServiceRefusal("unavailable");
  }

  /** Made when it is first asked for; that it is in use is written down once a day. */
  async #bucket(namespace: string, name: string): Promise<Bucket> {
    const today = this.#today();
    if (today !== this.#sweptOnDay) await this.#sweep(today);
    const known = this.#file.read((tables) => tables.bucket(namespace, name));
    if (known?.usedOnDay === today) return known;
    return this.#commits.submit((tables) => tables.made(namespace, name, today));
  }

  #today(): number {
    return Math.floor(this.#components.clock.wall().getTime() / DAY_MS);
  }

  /** Drops buckets that no pod has named for a long time. Called once a day, with a request of a component. */
  async #sweep(today: number): Promise<void> {
    const { namedBy, isClockSet, log } = this.#components;
    this.#sweptOnDay = today;
    if (!isClockSet()) return;
    const isStale = ({ namespace, name, usedOnDay }: Bucket): boolean =>
      usedOnDay + KEPT_DAYS < today && namedBy(namespace, name).length === 0;
    const stale = this.#file.read((tables) => tables.buckets()).filter(isStale);
    if (stale.length === 0) return;
    log.info("buckets that no pod names any more are removed", {
      buckets: stale.map(({ namespace, name }) => `${namespace}/${name}`),
    });
    await this.#commits.submit((tables) => {
      for (const bucket of stale) tables.drop(bucket);
    });
  }
}
