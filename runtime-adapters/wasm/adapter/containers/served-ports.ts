/** Checks that a pod's served containers, which share the node's ports, have a port each. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, EphemeralContainer, Pod } from "@picolet/protocol/pod/pod.ts";
import type { ComponentShape } from "../../shared/binary/component-shape.ts";
import type { HttpOptions } from "../../shared/grants/http-options.ts";
import { serveOptionsOf } from "./container-launch.ts";

/**
 * The first container that the pod names has the port, whichever starts first: the same one is always refused.
 * @param shapeOf of an image; undefined: it is absent, and its container's own start reports that
 * @throws `invalid` with both containers
 */
export async function refuseTakenPort(
  pod: Pod,
  name: string,
  port: number,
  options: HttpOptions | undefined,
  shapeOf: (image: string) => Promise<ComponentShape | undefined>,
): Promise<void> {
  for (const other of namedBefore(pod, name)) {
    const shape = await shapeOf(other.image);
    if (shape === undefined || servedPort(shape, options, other) !== port) continue;
    const remedy =
      options?.port === undefined
        ? "give each a containerPort of its own"
        : `leave port=${port} out of the annotation wasm.picolet.io/http, which is for all of them, and give each a containerPort of its own`;
    throw new PicoletError(
      "invalid",
      `the containers ${other.name} and ${name} would both be served on port ${port} of the node: ${remedy}`,
      { reason: "CreateContainerConfigError" },
    );
  }
}

/** The containers before it that run as long as it does. */
function namedBefore({ spec }: Pod, name: string): readonly (Container | EphemeralContainer)[] {
  const { containers, initContainers = [], ephemeralContainers = [] } = spec;
  const sidecars = initContainers.filter((each) => each.restartPolicy === "Always" || each.name === name);
  const all = [...sidecars, ...containers, ...ephemeralContainers];
  return all.slice(
    0,
    all.findIndex((each) => each.name === name),
  );
}

/** Undefined for one that is run, or that nothing gives a port. */
function servedPort(
  shape: ComponentShape,
  options: HttpOptions | undefined,
  container: Container | EphemeralContainer,
): number | undefined {
  try {
    return serveOptionsOf(shape, container.image, options, container)?.port;
  } catch {
    return undefined;
  }
}
