import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CredentialSource, PullCredential } from "../credentials/pull-credentials.ts";
import type { PullRecords, RecordedCredentials } from "./pull-records.ts";

/** The kubelet's `imagePullCredentialsVerificationPolicy`. */
export type VerificationPolicy =
  | "NeverVerify"
  | "NeverVerifyPreloadedImages"
  | "NeverVerifyAllowlistedImages"
  | "AlwaysVerify";

export interface ImageAccessInit {
  readonly policy: VerificationPolicy;
  /** Names of images, with their domain; `registry.example/team/*` stands for all below. */
  readonly allowlist: readonly string[];
}

/**
 * Decides whether a pod may use an image that is on the node: a private one only with credentials that opened it
 * before. Else it is pulled for that pod too, so that the registry decides; layers that are here are not sent again.
 */
export class ImageAccess {
  readonly #records: PullRecords;
  readonly #init: ImageAccessInit;

  constructor(components: { readonly records: PullRecords }, init: ImageAccessInit) {
    this.#records = components.records;
    this.#init = init;
  }

  /** @param lookUp called only for an image that was pulled with credentials */
  async mayUse(
    reference: RegistryReference,
    imageId: string,
    lookUp: () => Promise<readonly PullCredential[]>,
  ): Promise<boolean> {
    if (this.#init.policy === "NeverVerify") return true;
    const name = nameOf(reference);
    const mapping = this.#records.get(imageId);
    const isPulled = mapping !== undefined || this.#records.isIntended(reference.canonical);
    if (!this.#isVerified(name, isPulled)) return true;
    const known = mapping !== undefined && Object.hasOwn(mapping, name) ? mapping[name] : undefined;
    if (known === undefined) return false;
    if (known.nodePodsAccessible === true) return true;
    const credential = (await lookUp()).find((each) => opens(known, each));
    if (credential === undefined) return false;
    // A secret with another name or other content is known from now on.
    this.#records.add(imageId, name, recorded(credential));
    return true;
  }

  begin({ canonical }: RegistryReference): void {
    if (this.#init.policy !== "NeverVerify") this.#records.begin(canonical);
  }

  /** @param image undefined when the pull failed; @param credential undefined: it went without */
  end(reference: RegistryReference, image: ImageInfo | undefined, credential: PullCredential | undefined): void {
    if (this.#init.policy === "NeverVerify") return;
    if (image !== undefined) {
      this.#keepPreloaded(reference, image);
      // What is not written down stays intended, and is verified.
      if (!this.#records.add(image.id, nameOf(reference), recorded(credential))) return;
    }
    this.#records.end(reference.canonical);
  }

  /**
   * A record is for an image, under all of its names. Names from before its first record stay free for all pods,
   * because an imported image may have a name that no reachable registry has.
   */
  #keepPreloaded(pulled: RegistryReference, { id, tags }: ImageInfo): void {
    if (this.#records.get(id) !== undefined) return;
    for (const tag of tags) {
      const parsed = parseImageReference(tag);
      if (!parsed.ok || parsed.reference.kind !== "registry") continue;
      const name = nameOf(parsed.reference);
      if (name !== nameOf(pulled) && !this.#records.isIntended(parsed.reference.canonical))
        this.#records.add(id, name, { nodePodsAccessible: true });
    }
  }

  forget(imageId: string, names: readonly string[]): void {
    this.#records.forget(imageId, names);
  }

  #isVerified(name: string, isPulled: boolean): boolean {
    switch (this.#init.policy) {
      case "NeverVerify":
        return false;
      case "NeverVerifyPreloadedImages":
        return isPulled;
      case "NeverVerifyAllowlistedImages":
        return !this.#init.allowlist.some((each) =>
          each.endsWith("/*") ? name.startsWith(each.slice(0, -1)) : name === each,
        );
      case "AlwaysVerify":
        return true;
      default:
        return this.#init.policy satisfies never;
    }
  }
}

const nameOf = ({ domain, repository }: RegistryReference): string => `${domain}/${repository}`;

function recorded(credential: PullCredential | undefined): RecordedCredentials {
  if (credential === undefined || credential.source.kind === "node") return { nodePodsAccessible: true };
  const { kind, namespace, name } = credential.source;
  if (kind === "serviceAccount") return { kubernetesServiceAccounts: [{ namespace, name }] };
  return { kubernetesSecrets: [{ namespace, name, credentialHash: credential.hash }] };
}

/** The same credentials, or the same object: one whose content has changed is still its owner's. */
function opens(known: RecordedCredentials, { source, hash }: PullCredential): boolean {
  if (source.kind === "node") return false;
  if (source.kind === "serviceAccount")
    return (known.kubernetesServiceAccounts ?? []).some((each) => isSame(each, source));
  return (known.kubernetesSecrets ?? []).some((each) => each.credentialHash === hash || isSame(each, source));
}

const isSame = (
  { namespace, name }: { readonly namespace: string; readonly name: string },
  source: Exclude<CredentialSource, { kind: "node" }>,
): boolean => namespace === source.namespace && name === source.name;
