/**
 * Trust anchors of a cluster for files of projected volumes: what its ClusterTrustBundles say, each certificate once.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";

type Projection = NonNullable<NonNullable<Volume["projected"]>["sources"]>[number];
export type TrustBundleSource = NonNullable<Projection["clusterTrustBundle"]>;
type Selector = NonNullable<TrustBundleSource["labelSelector"]>;
type Fields = Readonly<Record<string, unknown>>;

const KIND = "ClusterTrustBundle";
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END CERTIFICATE-----/g;

/**
 * In PEM; empty where the source is optional and the cluster has none.
 * @throws `not_found` (retryable) with the kubelet's words
 */
export function trustAnchors(source: TrustBundleSource, objects: Pick<ClusterObjects, "object" | "keys">): Buffer {
  const bundles = source.name === undefined ? ofSigner(source, objects) : named(source, source.name, objects);
  const certificates = new Set<string>();
  for (const bundle of bundles) {
    const { trustBundle } = fields(bundle.spec);
    for (const [certificate] of String(trustBundle ?? "").matchAll(CERTIFICATE)) certificates.add(`${certificate}\n`);
  }
  return Buffer.from([...certificates].sort().join(""));
}

function named(
  { optional }: TrustBundleSource,
  name: string,
  objects: Pick<ClusterObjects, "object">,
): readonly Fields[] {
  const bundle = objects.object(objectKey(KIND, "", name));
  if (bundle !== undefined) return [bundle];
  if (optional === true) return [];
  throw notFound(
    `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io ${JSON.stringify(name)} not found`,
  );
}

/** A selector that is missing matches nothing, an empty one everything. */
function ofSigner(
  { signerName, labelSelector, optional }: TrustBundleSource,
  objects: Pick<ClusterObjects, "object" | "keys">,
): readonly Fields[] {
  if (signerName === undefined)
    throw new PicoletError("invalid", "ClusterTrustBundle projection requires either name or signerName to be set");
  const all = labelSelector === undefined ? [] : objects.keys(KIND, "").map((key) => objects.object(key));
  const found = all.filter(
    (bundle) =>
      bundle !== undefined &&
      fields(bundle.spec).signerName === signerName &&
      labelSelector !== undefined &&
      selects(labelSelector, fields(fields(bundle.metadata).labels)),
  );
  if (found.length === 0 && optional !== true)
    throw notFound("combination of signerName and labelSelector matched zero ClusterTrustBundles");
  return found.map(fields);
}

function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Fields): boolean {
  const labelValue = (key: string): unknown => (Object.hasOwn(labels, key) ? labels[key] : undefined);
  return (
    Object.entries(matchLabels).every(([key, value]) => labelValue(key) === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      const value = labelValue(key);
      const isAmong = typeof value === "string" && values.includes(value);
      if (operator === "In") return isAmong;
      if (operator === "NotIn") return !isAmong;
      return operator === "Exists" ? value !== undefined : operator === "DoesNotExist" && value === undefined;
    })
  );
}

const notFound = (message: string): PicoletError => new PicoletError("not_found", message, { retryable: true });
const fields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
