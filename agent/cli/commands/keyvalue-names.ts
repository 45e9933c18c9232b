/** Parses the names of buckets on the command line. Pure. */
import { usageError } from "../context/exit-codes.ts";
import { DEFAULT_NAMESPACE } from "../context/objects.ts";

export interface BucketAddress {
  readonly namespace: string;
  readonly name: string;
}

/** `NAME` or `NAMESPACE/NAME`. */
export function parseBucket(text: string, namespace: string | undefined): BucketAddress {
  const [first = "", second, ...more] = text.split("/");
  if (first === "" || second === "" || more.length > 0) throw usageError(`"${text}" is no name of a bucket`);
  if (second === undefined) return { namespace: namespace ?? DEFAULT_NAMESPACE, name: first };
  if (namespace !== undefined && namespace !== first) throw usageError(`"${text}" is not in namespace ${namespace}`);
  return { namespace: first, name: second };
}

export const bucketPath = ({ namespace, name }: BucketAddress): string =>
  `/v1/keyvalue/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

/** The shortest that can be typed back in. */
export const bucketLabel = ({ namespace, name }: BucketAddress): string =>
  namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
