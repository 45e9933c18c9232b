/** The volume of a pod that an annotation names. Pure. */
import type { Parsed } from "./interface-grant.ts";

const VOLUME_NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Checks the name alone. The start of a container checks that the volume exists and is mounted. */
export function parseVolumeName(text: string): Parsed<string> {
  const value = text.trim();
  return { value, problems: VOLUME_NAME.test(value) ? [] : [`${JSON.stringify(text)} is no name of a volume`] };
}
