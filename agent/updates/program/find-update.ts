import { PicoletError } from "@picolet/protocol/errors.ts";
import { atAnyEndpoint } from "@picolet/runtime-wasm/registry/endpoints.ts";
import type { RegistryClient } from "@picolet/runtime-wasm/registry/registry-client.ts";
import type { UpdateSource } from "../update-task.ts";
import { parseUpdateDocument, type UpdateArtifact, type WantedArtifact } from "./update-documents.ts";

/**
 * Finds the artifact at the registry or a mirror of it, and uses it there.
 * @throws `invalid` for one that is not for this board; what the registry says
 */
export function withArtifact<T>(
  { access, reference }: Extract<UpdateSource, { kind: "registry" }>,
  wanted: WantedArtifact,
  use: (artifact: UpdateArtifact, registry: RegistryClient) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  return atAnyEndpoint(access, async (registry) =>
    use(await artifactAt(registry, reference, wanted, signal), registry),
  );
}

async function artifactAt(
  registry: RegistryClient,
  reference: string,
  wanted: WantedArtifact,
  signal: AbortSignal,
): Promise<UpdateArtifact> {
  const first = parseUpdateDocument((await registry.manifest(reference, signal)).content, wanted);
  if (first.kind === "artifact") return first.artifact;
  const second = parseUpdateDocument((await registry.manifest(first.entry.digest, signal)).content, wanted);
  if (second.kind === "artifact") return second.artifact;
  throw new PicoletError("invalid", "its index leads to another index");
}
