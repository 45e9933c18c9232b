/** What a container that shares its process cannot have. Pure. */
import { PicoletError } from "../../../protocol/errors.ts";

/** @throws `invalid` with all of it, and CreateContainerConfigError */
export function refuseDense({ ownCpus, devices, p3 }: Readonly<Record<"ownCpus" | "devices" | "p3", boolean>>): void {
  const problems = [
    ownCpus && "CPUs of its own, which the CPU manager gives for a whole number of them",
    devices && "devices (gpio, i2c, serial), for which native code is loaded into the process",
    p3 && "WASI 0.3, whose glue keeps the event loop to itself",
  ].filter((each) => each !== false);
  if (problems.length === 0) return;
  throw new PicoletError(
    "invalid",
    `a container that shares its process cannot have ${problems.join("; nor ")}: take the annotation wasm.picolet.io/mode: isolated`,
    { reason: "CreateContainerConfigError" },
  );
}
