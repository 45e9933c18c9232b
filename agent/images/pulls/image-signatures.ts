/**
 * Verifies images that must be signed: cosign's signatures by key (the specification's "simple signing"), as its
 * releases up to 2 and skopeo put them into a registry. A verified image is on disk with its signature, so that it is
 * verified again without a network, by the keys that are configured then. Loaded only where `imageSignatures` has an
 * entry.
 */
import { createHash, createPublicKey, type KeyObject, verify } from "node:crypto";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { ImageReference, RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { ImageSignature, SignedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { SIGNATURE_REASON } from "../../core/pods/image-pulls.ts";
import type { RecordFiles } from "./pull-records.ts";

/** One entry of `imageSignatures`. */
export interface SignatureRule {
  /**
   * `registry.example/team/app`, `registry.example/team/*` for all below, `*` for every image. The longest that fits
   * counts.
   */
  readonly repository: string;
  readonly require: "signature" | "nothing" | "reject";
  /** PEM; one of them has to have signed. */
  readonly keys: readonly string[];
  /** Accepts a signature that was made for another repository, as mirrors that copy signatures need. */
  readonly anyRepository: boolean;
}

/** A verified signature, as it is on disk. */
interface Verified extends ImageSignature {
  readonly digest: string;
}

/** Bounds memory against a hostile registry: a payload of cosign's has some 250 bytes and the signer's annotations. */
const MAX_PAYLOAD_BYTES = 64 * KIBIBYTE;
const PAYLOAD_TYPES = ["cosign container image signature", "atomic container signature"];

interface Rule extends SignatureRule {
  readonly publicKeys: readonly KeyObject[];
}

export class ImageSignatures {
  readonly #rules: readonly Rule[];
  readonly #files: RecordFiles;
  readonly #log: Log;

  /** @throws `invalid` for a key that is none */
  constructor(components: { readonly files: RecordFiles; readonly log: Log }, rules: readonly SignatureRule[]) {
    this.#files = components.files;
    this.#log = components.log;
    // The longest first: it is the most exact.
    this.#rules = rules
      .map((rule) => ({ ...rule, publicKeys: rule.keys.map(publicKey) }))
      .sort((one, other) => other.repository.length - one.repository.length);
  }

  /**
   * Returns true when the image may only be used signed.
   * @throws `permission_denied` with the kubelet's reason for one that no rule lets in
   */
  requires(reference: ImageReference): reference is RegistryReference {
    const rule = this.#ruleOf(reference);
    if (rule === undefined || rule.require === "nothing") return false;
    if (rule.require === "reject") throw refused(reference, `imageSignatures rejects ${rule.repository}`);
    if (reference.kind !== "registry") throw refused(reference, "a file on the node has no signature");
    return true;
  }

  /**
   * @returns the digest that was verified under this name, if the keys still confirm it; undefined: the registry must
   *   be asked
   */
  known(reference: RegistryReference): string | undefined {
    try {
      const text = this.#files.read(recordName(reference));
      if (text === undefined) return undefined;
      const record = JSON.parse(text) as Partial<Verified>;
      const { digest = "", payload = "", signature = "" } = record;
      return this.#problemOf(reference, digest, { payload, signature }) === undefined ? digest : undefined;
    } catch (error) {
      this.#log.warn("cannot read the record of an image's signature: the registry is asked", {
        ...{ image: reference.canonical, error: describeError(error) },
      });
      return undefined;
    }
  }

  /**
   * Takes what the registry has; keeps what was verified.
   * @returns the digest that is signed. @throws `permission_denied` with the kubelet's reason, and what is wrong with
   * each signature
   */
  verify(reference: RegistryReference, { digest, signatures }: SignedImage): string {
    const problems: string[] = [];
    for (const each of signatures) {
      const problem = this.#problemOf(reference, digest, each);
      if (problem === undefined) {
        this.#keep(reference, { digest, payload: each.payload, signature: each.signature });
        return digest;
      }
      problems.push(problem);
    }
    const why =
      problems.length === 0 ? `the registry has no signature of ${digest}` : [...new Set(problems)].join("; ");
    throw refused(reference, why);
  }

  #keep(reference: RegistryReference, verified: Verified): void {
    const name = recordName(reference);
    try {
      this.#files.write(
        `${name}.new`,
        JSON.stringify({ kind: "ImageSignatureRecord", image: reference.canonical, ...verified }),
      );
      this.#files.rename(`${name}.new`, name);
      this.#files.sync();
    } catch (error) {
      // The signature is valid all the same, but cannot be verified offline later.
      this.#log.warn("cannot keep an image's signature", { image: reference.canonical, error: describeError(error) });
    }
  }

  /** @returns why this signature does not count; undefined when it does */
  #problemOf(reference: RegistryReference, digest: string, { payload, signature }: ImageSignature): string | undefined {
    const rule = this.#ruleOf(reference);
    const bytes = Buffer.from(payload, "base64");
    if (bytes.length > MAX_PAYLOAD_BYTES) return `a signature's payload has more than ${MAX_PAYLOAD_BYTES} bytes`;
    const signed = Buffer.from(signature, "base64");
    if (!rule?.publicKeys.some((key) => isSignedBy(key, bytes, signed)))
      return "a signature is by no key of the policy";
    const about = readPayload(bytes);
    if (about === undefined) return "what is signed is no signature of an image";
    if (about.digest !== digest) return `a signature is of ${about.digest}, not of ${digest}`;
    const { domain, repository } = reference;
    const own = `${domain}/${repository}`;
    if (!rule.anyRepository && repositoryOf(about.name) !== own)
      return `a signature is for ${about.name}, not for ${own}`;
    return undefined;
  }

  #ruleOf(reference: ImageReference): Rule | undefined {
    const name = reference.kind === "registry" ? `${reference.domain}/${reference.repository}` : reference.canonical;
    return this.#rules.find(({ repository }) => matches(repository, name));
  }
}

/** @param pattern as `SignatureRule.repository` */
export function matches(pattern: string, name: string): boolean {
  if (pattern === "*") return true;
  return pattern.endsWith("/*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** @throws `invalid` */
export function publicKey(pem: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPublicKey(pem);
  } catch (cause) {
    throw new PicoletError("invalid", "a key is no public key in PEM", { cause });
  }
  if (["ec", "rsa", "ed25519"].includes(key.asymmetricKeyType ?? "")) return key;
  throw new PicoletError("invalid", `a key is of the type ${key.asymmetricKeyType}; ec, rsa and ed25519 are known`);
}

function isSignedBy(key: KeyObject, payload: Uint8Array, signature: Uint8Array): boolean {
  try {
    return verify(key.asymmetricKeyType === "ed25519" ? null : "sha256", payload, key, signature);
  } catch {
    return false;
  }
}

/** The fields of "simple signing" that say what is signed: containers/image, docs/containers-signature.5. */
function readPayload(bytes: Uint8Array): { readonly digest: string; readonly name: string } | undefined {
  try {
    const { critical } = JSON.parse(Buffer.from(bytes).toString("utf8")) as {
      readonly critical?: Record<string, unknown>;
    };
    const image = critical?.image as { readonly "docker-manifest-digest"?: unknown } | undefined;
    const identity = critical?.identity as { readonly "docker-reference"?: unknown } | undefined;
    const [digest, name] = [image?.["docker-manifest-digest"], identity?.["docker-reference"]];
    if (!PAYLOAD_TYPES.includes(String(critical?.type))) return undefined;
    return typeof digest === "string" && typeof name === "string" ? { digest, name } : undefined;
  } catch {
    return undefined;
  }
}

/** skopeo writes the tag too. */
const repositoryOf = (name: string): string => name.replace(/@.*$/, "").replace(/:[^/:]*$/, "");

const recordName = ({ canonical }: RegistryReference): string =>
  `signed-${createHash("sha256").update(canonical).digest("hex")}`;

const refused = ({ canonical }: ImageReference, why: string): PicoletError =>
  new PicoletError("permission_denied", `image ${canonical} may not be used here: ${why}`, {
    reason: SIGNATURE_REASON,
    retryable: true,
  });
