import { PicoletError } from "@picolet/protocol/errors.ts";
import { compareVersions } from "../../plan/updates/compare-versions.ts";
import type { FetchedTask } from "../update-task.ts";

/** @returns false when that version runs already. @throws `invalid` for an older one that is not allowed */
export function isOtherVersion(
  offered: string,
  { version, allowDowngrade }: Pick<FetchedTask, "version" | "allowDowngrade">,
): boolean {
  const order = compareVersions(offered, version);
  if (order < 0 && !allowDowngrade)
    throw new PicoletError(
      "invalid",
      `${offered} is older than ${version}, which runs: picolet.io/update-allow-downgrade: "true" allows it`,
    );
  return order !== 0;
}
