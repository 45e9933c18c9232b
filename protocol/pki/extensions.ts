/** X.509 extensions (RFC 5280, 4.2): those that certificates of nodes, hubs and their CAs have. */
import { PicoletError } from "../errors.ts";
import {
  contextPrimitive,
  DerReader,
  der,
  derBitString,
  derInteger,
  derOf,
  derOid,
  derSequence,
  derTrue,
  TAG,
} from "./der.ts";

export interface Extension {
  readonly oid: string;
  readonly critical: boolean;
  /** DER, as it is within the OCTET STRING. */
  readonly value: Uint8Array;
}

export const EXTENSION = {
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
} as const;

export const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
export const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

/** Bits of KeyUsage, most significant first in the first byte. */
export const KEY_USAGE = { digitalSignature: 0x80, keyEncipherment: 0x20, keyCertSign: 0x04, cRLSign: 0x02 } as const;

/** A certificate of ours has six; real ones of others up to some fifteen. */
const MAX_EXTENSIONS = 32;

export const encodeExtension = ({ oid, critical, value }: Extension): Uint8Array =>
  derSequence(derOid(oid), ...(critical ? [derTrue()] : []), der(TAG.octetString, value));

/** @param bytes `Extensions`: a sequence of them. @throws `invalid`, also when one is there twice */
export function readExtensions(bytes: Uint8Array): Extension[] {
  const list = derOf(bytes, TAG.sequence, "extensions");
  const extensions: Extension[] = [];
  while (!list.atEnd) {
    const extension = list.sequence("extension");
    const oid = extension.oid("type of an extension");
    const flag = extension.optional(TAG.boolean);
    if (flag !== undefined && (flag.content.length !== 1 || flag.content[0] !== 0xff)) {
      throw new PicoletError("invalid", "an extension's critical flag is not as DER has it");
    }
    const value = extension.expect(TAG.octetString, "value of an extension").content;
    extension.end("an extension");
    if (extensions.some((each) => each.oid === oid))
      throw new PicoletError("invalid", `extension ${oid} is named twice`);
    extensions.push({ oid, critical: flag !== undefined, value });
    if (extensions.length > MAX_EXTENSIONS) throw new PicoletError("invalid", "there are too many extensions");
  }
  return extensions;
}

/** @param pathLength how many CAs may follow below it; undefined for what is no CA */
export const basicConstraints = (pathLength: number | undefined): Extension => ({
  oid: EXTENSION.basicConstraints,
  critical: true,
  value: derSequence(...(pathLength === undefined ? [] : [derTrue(), derInteger(Uint8Array.of(pathLength))])),
});

export function keyUsage(bits: number): Extension {
  let unused = 0;
  while (unused < 7 && ((bits >> unused) & 1) === 0) unused += 1;
  return { oid: EXTENSION.keyUsage, critical: true, value: derBitString(Uint8Array.of(bits), unused) };
}

export const extendedKeyUsage = (...purposes: readonly string[]): Extension => ({
  oid: EXTENSION.extendedKeyUsage,
  critical: false,
  value: derSequence(...purposes.map(derOid)),
});

export const subjectKeyIdentifier = (id: Uint8Array): Extension => ({
  oid: EXTENSION.subjectKeyIdentifier,
  critical: false,
  value: der(TAG.octetString, id),
});

export const authorityKeyIdentifier = (id: Uint8Array): Extension => ({
  oid: EXTENSION.authorityKeyIdentifier,
  critical: false,
  value: derSequence(der(contextPrimitive(0), id)),
});

export interface AlternativeNames {
  readonly dns: readonly string[];
  /** Four or sixteen bytes each. */
  readonly addresses: readonly Uint8Array[];
}

export const subjectAltName = ({ dns, addresses }: AlternativeNames): Extension => ({
  oid: EXTENSION.subjectAltName,
  critical: false,
  value: derSequence(
    ...dns.map((name) => der(NAME_TAG.dns, new TextEncoder().encode(name))),
    ...addresses.map((address) => der(NAME_TAG.ip, address)),
  ),
});

/** Tags of the types of a GeneralName (RFC 5280, 4.2.1.6). */
const NAME_TAG = {
  email: contextPrimitive(1),
  dns: contextPrimitive(2),
  uri: contextPrimitive(6),
  ip: contextPrimitive(7),
};

export interface RequestedNames extends AlternativeNames {
  /** One entry for each name that is neither DNS name nor address. */
  readonly others: readonly ("Email" | "URI" | "Other")[];
}

/**
 * @param value subjectAltName of a request; whether its DNS names are well-formed is not checked
 * @throws `invalid`, also for an address that has neither four nor sixteen bytes
 */
export function readSubjectAltName(value: Uint8Array): RequestedNames {
  const list = derOf(value, TAG.sequence, "alternative names");
  const dns: string[] = [];
  const addresses: Uint8Array[] = [];
  const others: RequestedNames["others"][number][] = [];
  while (!list.atEnd) {
    const { tag, content } = list.next();
    if (tag === NAME_TAG.dns) dns.push(new TextDecoder("latin1").decode(content));
    else if (tag === NAME_TAG.ip) {
      if (content.length !== 4 && content.length !== 16) throw new PicoletError("invalid", "malformed IP address");
      addresses.push(content);
    } else others.push(tag === NAME_TAG.email ? "Email" : tag === NAME_TAG.uri ? "URI" : "Other");
  }
  return { dns, addresses, others };
}

/** `pathLength` undefined: no limit. Undefined altogether: no CA. */
export function readBasicConstraints(value: Uint8Array): { readonly pathLength: number | undefined } | undefined {
  const constraints = derOf(value, TAG.sequence, "basic constraints");
  const isCa = constraints.optional(TAG.boolean) !== undefined;
  const length = constraints.optional(TAG.integer);
  constraints.end("the basic constraints");
  if (!isCa) return undefined;
  if (length === undefined) return { pathLength: undefined };
  const [only, ...more] = length.content;
  if (only === undefined || only >= 0x80 || more.length > 0) throw new PicoletError("invalid", "no path length");
  return { pathLength: only };
}

/** The bits of the first byte, as KEY_USAGE has them. */
export function readKeyUsage(value: Uint8Array): number {
  const reader = new DerReader(value);
  const { content } = reader.expect(TAG.bitString, "key usage");
  reader.end("the key usage");
  return content[1] ?? 0;
}

export function readExtendedKeyUsage(value: Uint8Array): string[] {
  const purposes = derOf(value, TAG.sequence, "extended key usage");
  const found: string[] = [];
  while (!purposes.atEnd) found.push(purposes.oid("purpose"));
  return found;
}
