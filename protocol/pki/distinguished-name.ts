/**
 * The subject of certificates: a list of attributes, as everything that is compared here has one attribute in each
 * part.
 */

import { PicoletError } from "../errors.ts";
import { type DerReader, derOid, derSequence, derSet, derUtf8, DerReader as Reader, stringOf, TAG } from "./der.ts";

export interface NameAttribute {
  readonly type: "CN" | "O";
  readonly value: string;
}

const OID_OF = { CN: "2.5.4.3", O: "2.5.4.10" } as const;

export const encodeName = (attributes: readonly NameAttribute[]): Uint8Array =>
  derSequence(...attributes.map(({ type, value }) => derSet(derSequence(derOid(OID_OF[type]), derUtf8(value)))));

/** More than any subject of Kubernetes: its groups are one O each. */
const MAX_ATTRIBUTES = 64;

/**
 * @param reader at a Name
 * @throws `invalid` for attributes other than CN and O, and for several in one part: nothing here may guess what they
 * mean
 */
export function readName(reader: DerReader): NameAttribute[] {
  const parts = reader.sequence("name");
  const attributes: NameAttribute[] = [];
  while (!parts.atEnd) {
    const part = new Reader(parts.expect(TAG.set, "part of a name").content);
    const attribute = part.sequence("attribute of a name");
    part.end("a name's part of one attribute");
    const oid = attribute.oid("type of an attribute");
    const value = stringOf(attribute.next());
    attribute.end("an attribute of a name");
    const type = oid === OID_OF.CN ? "CN" : oid === OID_OF.O ? "O" : undefined;
    if (type === undefined)
      throw new PicoletError("invalid", `the subject has an attribute other than CN and O: ${oid}`);
    if (value === undefined || value === "")
      throw new PicoletError("invalid", `the subject's ${type} is no plain text`);
    attributes.push({ type, value });
    if (attributes.length > MAX_ATTRIBUTES) throw new PicoletError("invalid", "the subject has too many attributes");
  }
  return attributes;
}
