/** The key-value store for the node's administrator: the same keys, values, limits and commits as for components. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { KeyvalueBucketReport, KeyvalueKeyList } from "@picolet/protocol/local-api/status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type BucketGrant, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import type { BucketName, KeyvalueBuckets } from "../../core/store/keyvalue-buckets.ts";
import type { Bucket, BucketTables, KeyRange } from "./bucket-tables.ts";
import type { GroupCommit } from "./group-commit.ts";
import type { KeyvalueFile } from "./keyvalue-file.ts";
import { DAY_MS, type NamedBucket } from "./keyvalue-service.ts";
import { keyOf, valueAt } from "./requests.ts";

export interface KeyvalueAdministrationComponents {
  readonly log: Log;
  readonly file: KeyvalueFile;
  readonly commits: GroupCommit;
  readonly namedBy: (namespace: string, bucket: string) => readonly NamedBucket[];
  /** Since 1970. */
  readonly today: () => number;
}

/** The quota of a bucket that no pod names: the largest that a pod could name. */
const UNNAMED = { maxBytes: 32 * MEBIBYTE, maxKeys: 100_000 };

const NO_SUCH_KEY = "no-such-key";

export class KeyvalueAdministration implements KeyvalueBuckets {
  readonly #components: KeyvalueAdministrationComponents;

  constructor(components: KeyvalueAdministrationComponents) {
    this.#components = components;
  }

  list(): readonly KeyvalueBucketReport[] {
    const { file } = this.#components;
    if (!file.isThere) return [];
    return withContext({ what: "the buckets" }, () =>
      file.read((tables) => tables.buckets().map((bucket) => this.#report(tables, bucket))),
    );
  }

  keys(name: BucketName, range: KeyRange): KeyvalueKeyList {
    return this.#read({ what: `the keys of ${textOf(name)}`, name }, (tables, { id }) => {
      const { keys, hasMore } = tables.keys(id, range);
      return { items: keys, next: hasMore ? (keys.at(-1)?.key ?? null) : null };
    });
  }

  get(name: BucketName, key: string): Uint8Array {
    return this.#read({ what: placeOf(name, key), name }, (tables, { id }) => {
      const value = tables.get(id, keyOf(key));
      if (value === undefined) throw new ServiceRefusal(NO_SUCH_KEY);
      return value;
    });
  }

  async set(name: BucketName, key: string, value: Uint8Array): Promise<void> {
    const grants = this.#components.namedBy(name.namespace, name.name).map(({ grant }) => grant);
    const quota = { name: name.name, ...(largest(grants) ?? UNNAMED) };
    const entry = withContext({ what: placeOf(name, key) }, () => ({
      key: keyOf(key),
      value: valueAt({ value: null, bytes: [value] }),
    }));
    await this.#change({ what: `set ${placeOf(name, key)}`, name, quota }, grants.length > 0, (tables) => {
      if (grants.length === 0) found(tables, name);
      tables.set(tables.made(name.namespace, name.name, this.#components.today()).id, [entry], quota);
    });
    this.#components.log.info("a value of components was set by hand", { bucket: textOf(name), key });
  }

  async delete(name: BucketName, key: string): Promise<void> {
    withContext({ what: placeOf(name, key) }, () => keyOf(key));
    await this.#change({ what: `delete ${placeOf(name, key)}`, name }, false, (tables) => {
      const { id } = found(tables, name);
      if (!tables.exists(id, key)) throw new ServiceRefusal(NO_SUCH_KEY);
      tables.delete(id, [key]);
    });
    this.#components.log.info("a value of components was deleted by hand", { bucket: textOf(name), key });
  }

  async drop(name: BucketName): Promise<void> {
    const bucket = textOf(name);
    await this.#change({ what: `delete the bucket ${bucket}`, name }, false, (tables) =>
      tables.drop(found(tables, name)),
    );
    this.#components.log.info("a bucket of components was deleted by hand", { bucket });
  }

  #report(tables: BucketTables, { id, namespace, name, usedOnDay }: Bucket): KeyvalueBucketReport {
    const named = this.#components.namedBy(namespace, name);
    const quota = largest(named.map(({ grant }) => grant));
    return {
      ...{ namespace, name, ...tables.holding(id) },
      usedOn: new Date(usedOnDay * DAY_MS).toISOString().slice(0, "2026-11-20".length),
      quota: quota === undefined ? null : { bytes: quota.maxBytes, keys: quota.maxKeys },
      pods: named.map(({ pod }) => pod),
    };
  }

  /** Reading alone makes no file. */
  #read<R>(context: Context & { readonly name: BucketName }, work: (tables: BucketTables, bucket: Bucket) => R): R {
    const { file } = this.#components;
    if (!file.isThere) throw noBucket(context.name);
    return withContext(context, () => file.read((tables) => work(tables, found(tables, context.name))));
  }

  async #change(
    context: Context & { readonly name: BucketName },
    mayMakeFile: boolean,
    work: (tables: BucketTables) => void,
  ): Promise<void> {
    const { file, commits } = this.#components;
    if (!mayMakeFile && !file.isThere) throw noBucket(context.name);
    try {
      await commits.submit(work);
    } catch (error) {
      throw asPicoletError({ ...context, what: `cannot ${context.what}` }, error);
    }
  }
}

const textOf = ({ namespace, name }: BucketName): string => `${namespace}/${name}`;
const placeOf = (name: BucketName, key: string): string => `key ${JSON.stringify(key)} of ${textOf(name)}`;

const noBucket = (name: BucketName): PicoletError =>
  new PicoletError("not_found", `there is no bucket ${textOf(name)}; edgectl keyvalue list shows those there are`);

/** @throws ServiceRefusal `no-such-bucket` */
function found(tables: BucketTables, { namespace, name }: BucketName): Bucket {
  const bucket = tables.bucket(namespace, name);
  if (bucket === undefined) throw new ServiceRefusal("no-such-bucket");
  return bucket;
}

function largest(grants: readonly BucketGrant[]): { readonly maxBytes: number; readonly maxKeys: number } | undefined {
  if (grants.length === 0) return undefined;
  return {
    maxBytes: Math.max(...grants.map(({ maxBytes }) => maxBytes)),
    maxKeys: Math.max(...grants.map(({ maxKeys }) => maxKeys)),
  };
}

/** The object of an error. */
interface Context {
  readonly what: string;
  readonly name?: BucketName;
  readonly quota?: BucketGrant;
}

/** @throws PicoletError for what the store refuses */
function withContext<R>(context: Context, work: () => R): R {
  try {
    return work();
  } catch (error) {
    throw asPicoletError(context, error);
  }
}

function asPicoletError({ what, name, quota }: Context, error: unknown): unknown {
  if (!(error instanceof ServiceRefusal)) return error;
  switch (error.tag) {
    case "no-such-bucket":
      return name === undefined ? error : noBucket(name);
    case NO_SUCH_KEY:
      return new PicoletError("not_found", `${what}: there is no such key`);
    case "bad-key":
      return new PicoletError("invalid", `${what}: a key is a text of 1 to 1024 bytes without NUL`);
    case "too-large":
      return new PicoletError("invalid", `${what}: a value has 1048576 bytes at the most`);
    case "quota-exceeded": {
      const limit = `the bucket may hold ${quota?.maxBytes} bytes and ${quota?.maxKeys} keys`;
      const remedy = "delete some, or raise what the pod's annotation wasm.picolet.io/keyvalue says";
      return new PicoletError("resource_exhausted", `${what}: ${limit}; ${remedy}`);
    }
    case "unavailable":
      return new PicoletError("unavailable", `${what}: too many changes wait for the disk; try again`);
    default:
      return new PicoletError("failed", `${what}: ${error.val ?? error.tag}`);
  }
}
