/** Everything of images on this node, put together. */
import { accessSync, constants, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { NodeImages } from "../../core/pods/image-pulls.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { DesiredSnapshot, EventRecorder } from "../../core/store/store-ports.ts";
import { readNodeDockerConfig } from "../../images/credentials/node-docker-config.ts";
import { type CredentialPluginPort, PullCredentials } from "../../images/credentials/pull-credentials.ts";
import { NodeImageManager } from "../../images/node-images.ts";
import { PinnedImages } from "../../images/pinned-images.ts";
import { Prefetcher } from "../../images/prefetcher.ts";
import { ImageAccess, type VerificationPolicy } from "../../images/pulls/image-access.ts";
import { ImagePuller } from "../../images/pulls/image-puller.ts";
import type { ImageSignatures } from "../../images/pulls/image-signatures.ts";
import { PullRecords, RECORDS_FOLDER, type RecordFiles } from "../../images/pulls/pull-records.ts";
import { DurableFolderOnDisk } from "../../security/durable-folder.ts";
import type { AgentArguments } from "../node/agent-init.ts";

export interface ImagesComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
  readonly events: EventRecorder;
  readonly router: RuntimeRouter;
  readonly desired: Watch<DesiredSnapshot>;
  readonly objects: ClusterObjects;
  readonly objectsChanged: Watch<unknown>;
  /** See `PullCredentialsComponents`. */
  readonly fingerprint: ((text: string) => string) | undefined;
  readonly pods: () => readonly AgentPod[];
}

export interface ImagesInit {
  readonly args: AgentArguments;
  readonly configuration: Configuration;
}

export interface Images {
  readonly puller: ImagePuller;
  readonly prefetcher: Prefetcher;
  readonly images: NodeImages;
  /** For garbage collection. */
  readonly access: ImageAccess;
  readonly credentials: PullCredentials;
}

/** @throws `invalid` when the credential provider plugins are not configured as they should be */
export async function makeImages(components: ImagesComponents, { args, configuration }: ImagesInit): Promise<Images> {
  const {
    clock,
    random,
    log,
    counts,
    events,
    router,
    desired,
    objects,
    objectsChanged: nodeChanged,
    pods,
  } = components;
  const { nodeName } = configuration;
  const files = new DurableFolderOnDisk({ path: join(args.rootDir, RECORDS_FOLDER) });
  const pins = new PinnedImages({ files, log });
  const access = new ImageAccess(
    { records: new PullRecords({ files, clock, log }) },
    {
      policy: configuration.imagePullCredentialsVerificationPolicy as VerificationPolicy,
      allowlist: configuration.preloadedImagesVerificationAllowlist,
    },
  );
  const nodeConfig = (): ReturnType<typeof readNodeDockerConfig> => readNodeDockerConfig(args.rootDir);
  const plugins = await makePlugins(components, configuration);
  const { fingerprint } = components;
  const credentials = new PullCredentials({ objects, nodeConfig, plugins, fingerprint, log });
  const signatures = await makeSignatures(files, log, configuration);
  const signatureSource = router.adapters.map(({ images }) => images).find((each) => each.signatures !== undefined);
  const ports = { events, clock, random, log, counts, credentials, access, signatures, signatureSource };
  const puller = new ImagePuller(ports, configuration);
  const nodeKey = objectKey("Node", "", nodeName);
  const nodeObject = (): ReturnType<ClusterObjects["object"]> => objects.object(nodeKey);
  const prefetcher = new Prefetcher(
    { puller, router, desired, nodeChanged, nodeObject, clock, random, log, events },
    { nodeName },
  );
  const { adapters } = router;
  const images = new NodeImageManager({ puller, adapters, pins, access, prefetcher, pods, log }, { nodeName });
  return { puller, prefetcher, images, access, credentials };
}

/** Loaded only where images have to be signed. @throws `invalid` for a key that cannot be read */
async function makeSignatures(
  files: RecordFiles,
  log: Log,
  { imageSignatures }: Configuration,
): Promise<ImageSignatures | undefined> {
  if (imageSignatures.length === 0) return undefined;
  const { ImageSignatures } = await import("../../images/pulls/image-signatures.ts");
  const rules = imageSignatures.map(({ repository, require, keys, keyFiles, signedIdentity }, index) => ({
    ...{ repository, require: require ?? "signature", anyRepository: signedIdentity === "any" },
    keys: [...(keys ?? []), ...(keyFiles ?? []).map((path) => readKey(`imageSignatures[${index}].keyFiles`, path))],
  }));
  return new ImageSignatures({ files, log }, rules);
}

function readKey(field: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the key ${path} that ${field} names`, { cause });
  }
}

/** Loaded only where there are any. */
async function makePlugins(
  { clock, objects }: ImagesComponents,
  configuration: Configuration,
): Promise<CredentialPluginPort | undefined> {
  const { imageCredentialProviderConfig: config, imageCredentialProviderBinDir: binDir } = configuration;
  if (config === "" && binDir === "") return undefined;
  if (config === "" || binDir === "") {
    throw new PicoletError(
      "invalid",
      "cannot use credential provider plugins: both their configuration and their folder are needed",
    );
  }
  const { parseCredentialProviders } = await import("../../images/credentials/credential-provider-config.ts");
  const { CredentialPlugins } = await import("../../images/credentials/credential-plugins.ts");
  const providers = parseCredentialProviders(configFiles(config));
  for (const { name } of providers) requireProgram(join(binDir, name));
  return new CredentialPlugins({ clock, objects }, { providers, binDir });
}

/** One file, or all of a folder, in the order of their names. */
function configFiles(path: string): readonly { readonly path: string; readonly text: string }[] {
  try {
    if (!statSync(path).isDirectory()) return [{ path, text: readFileSync(path, "utf8") }];
    const names = readdirSync(path, { withFileTypes: true })
      .filter((entry) => !entry.isDirectory() && /\.(?:json|ya?ml)$/.test(entry.name))
      .map(({ name }) => name)
      .sort();
    if (names.length === 0) throw new PicoletError("invalid", "it holds no .json, .yaml or .yml");
    return names.map((name) => ({ path: join(path, name), text: readFileSync(join(path, name), "utf8") }));
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the credential providers' configuration ${path}`, { cause });
  }
}

function requireProgram(path: string): void {
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    throw new PicoletError("invalid", `plugin binary executable ${path} did not exist`, { cause });
  }
}
