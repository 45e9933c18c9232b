/** The values that components keep, as the local API shows and changes them. */
import type { KeyvalueBucketReport, KeyvalueKeyList } from "@picolet/protocol/local-api/status.ts";

export interface BucketName {
  readonly namespace: string;
  readonly name: string;
}

/** Every change resolves when it is on the disk. Errors: PicoletError; `not_found` for what is not there. */
export interface KeyvalueBuckets {
  list(): readonly KeyvalueBucketReport[];
  /** By the order of keys. @param after the last key of the page before, else "" */
  keys(
    bucket: BucketName,
    range: { readonly prefix: string; readonly after: string; readonly limit: number },
  ): KeyvalueKeyList;
  /** @throws `failed` also for a value that is not as it was written */
  get(bucket: BucketName, key: string): Uint8Array;
  /**
   * Within the quota that pods of this node name for it. A bucket that is not there is made when a pod names it.
   * @throws `invalid` for what no component could set either, `resource_exhausted` beyond the quota
   */
  set(bucket: BucketName, key: string, value: Uint8Array): Promise<void>;
  delete(bucket: BucketName, key: string): Promise<void>;
  /** With all of its keys. Components that use it find it empty. */
  drop(bucket: BucketName): Promise<void>;
}
