/** What a container that shares its process cannot have. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";

export interface DenseRequirements {
  readonly ownCpus: boolean;
  readonly devices: boolean;
  readonly p3: boolean;
  /** Why the user that it is run as could not reach its files; undefined: it can. */
  readonly unjailed: string | undefined;
}

/** @throws `invalid` with all of it, and CreateContainerConfigError */
export function refuseDense({ ownCpus, devices, p3, unjailed }: DenseRequirements): void {
  const problems = [
    ownCpus && "CPUs of its own, which the CPU manager gives for a whole number of them",
    devices && "devices (gpio, i2c, serial), for which native code is loaded into the process",
    p3 && "WASI 0.3, whose glue keeps the event loop to itself",
    unjailed !== undefined &&
      `another user than root where no jail can be made (${unjailed}), as files of containers that come later are opened by that user`,
  ].filter((each) => each !== false);
  if (problems.length === 0) return;
  throw new PicoletError(
    "invalid",
    `a container that shares its process cannot have ${problems.join("; nor ")}: take the annotation wasm.picolet.io/mode: isolated`,
    { reason: "CreateContainerConfigError" },
  );
}
