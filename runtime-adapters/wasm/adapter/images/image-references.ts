/** Names of images as people and archives write them. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type ImageReference, parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";

export function parseReference(text: string): ImageReference {
  const parsed = parseImageReference(text);
  if (parsed.ok) return parsed.reference;
  throw new PicoletError("invalid", `cannot parse the image name ${JSON.stringify(text)}: ${parsed.problem}`, {
    reason: "InvalidImageName",
  });
}

export function parseImportName(name: string | undefined, path: string): string {
  if (name === undefined)
    throw new PicoletError("invalid", `cannot name the image of ${path}: it brings no name, give one`);
  const reference = parseReference(name);
  if (reference.kind === "file") throw new PicoletError("invalid", "an imported image cannot have a file:// name");
  return reference.canonical;
}

export const parseArchiveName = (name: string): string => parseImportName(name, name);
