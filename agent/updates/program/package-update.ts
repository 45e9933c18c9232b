/** The agent alone, on a board with its vendor's system: a signed Debian package, and one to go back to. */
import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { copyFile, mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { downloadBlob } from "@picolet/runtime-wasm/registry/blob-download.ts";
import { syncDirectory } from "@picolet/runtime-wasm/shared/files/durable-files.ts";
import { DEFAULT_PULL_LIMITS } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import { CURRENT_PACKAGE, NEXT_PACKAGE, PREVIOUS_PACKAGE, type UpdateAnswer, type UpdateTask } from "../update-task.ts";
import { BytePace } from "./byte-pace.ts";
import { complaintOf, type RunCommand } from "./commands.ts";
import { withArtifact } from "./find-update.ts";
import { checkRoom, type UpdateProgramComponents } from "./system-update.ts";
import { isOtherVersion } from "./version-rules.ts";

type PackageTask = Extract<UpdateTask, { want: "agent" }>;

/** Bounds memory: Ed25519 signs a message as a whole. Packages have at most 60 MiB, uncompressed ones 140. */
const MAX_PACKAGE_BYTES = 192 * MEBIBYTE;
/** Unpacked, packed again, and the new one: in multiples of the package's own size. */
const ROOM_FACTOR = 4;
/** Base64 of 64 bytes, with a line feed. */
const MAX_SIGNATURE_LENGTH = 128;
const MAX_KEYS = 32;
const NAME = "picolet";
const DOWNLOAD = "package.part";

export async function updatePackage(
  components: UpdateProgramComponents,
  task: PackageTask,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const keys = await updateKeys(task.keysDirectory);
  const { source } = task;
  if (source.kind === "file") {
    await checkSize(source.path);
    const signature = await readFile(`${source.path}.sig`, "utf8").catch((cause: unknown) => {
      throw new PicoletError("invalid", `cannot read ${source.path}.sig, which must have its signature`, { cause });
    });
    return await take(components, task, { path: source.path, signature, keys, isOwn: false }, signal);
  }
  return withArtifact(
    source,
    { kind: "agent", architecture: task.architecture },
    async ({ layer, version, signature }, registry) => {
      if (!isOtherVersion(version, task)) return { kind: "current", version };
      if (signature === "") throw new PicoletError("invalid", "it has no signature");
      if (layer.sizeBytes > MAX_PACKAGE_BYTES) throw tooLarge();
      await checkRoom(task.directory, layer.sizeBytes * ROOM_FACTOR);
      const path = join(task.directory, DOWNLOAD);
      const { clock, random } = components;
      const pace = new BytePace(clock, task.bytesPerSecond);
      const passed = (count: number, stop: AbortSignal): Promise<void> => pace.passed(count, stop);
      const download = { clock, random, registry, onBytes: () => undefined, passed };
      await downloadBlob(download, { blob: layer, path, limits: DEFAULT_PULL_LIMITS }, signal);
      return await take(components, task, { path, signature, keys, isOwn: true }, signal);
    },
    signal,
  );
}

const tooLarge = (): PicoletError => new PicoletError("invalid", `it has more than ${MAX_PACKAGE_BYTES} bytes`);

async function checkSize(path: string): Promise<void> {
  const found = await stat(path).catch((cause: unknown) => {
    throw new PicoletError("invalid", `cannot read ${path}`, { cause });
  });
  if (found.size > MAX_PACKAGE_BYTES) throw tooLarge();
}

interface FetchedPackage {
  readonly path: string;
  readonly signature: string;
  readonly keys: readonly KeyObject[];
  /** In the folder of updates: it may be moved. */
  readonly isOwn: boolean;
}

async function take(
  { run, onInstalling }: UpdateProgramComponents,
  task: PackageTask,
  { path, signature, keys, isOwn }: FetchedPackage,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const content = await readFile(path);
  if (!isSigned(content, signature, keys)) {
    if (isOwn) await rm(path, { force: true });
    throw new PicoletError("invalid", `none of the ${keys.length} keys in ${task.keysDirectory} has signed it`);
  }
  const fields = await fieldsOf(run, path, signal);
  if (fields.package !== NAME) throw new PicoletError("invalid", `it is the package ${fields.package}, not ${NAME}`);
  if (fields.architecture !== task.architecture)
    throw new PicoletError("invalid", `it is for ${fields.architecture}, this board is ${task.architecture}`);
  const { version } = fields;
  if (!isOtherVersion(version, task)) {
    if (isOwn) await rm(path, { force: true });
    return { kind: "current", version };
  }
  const answer: UpdateAnswer = {
    kind: "prepared",
    version,
    slot: "",
    bytes: content.length,
    totalBytes: content.length,
  };
  if (!task.install) return answer;
  onInstalling();
  await keepPrevious(run, task, content.length, signal);
  const next = join(task.directory, NEXT_PACKAGE);
  if (isOwn) await rename(path, next);
  else await store(next, (to) => copyFile(path, to));
  await syncDirectory(task.directory);
  return answer;
}

/** @throws `invalid` when there are none: without a key every package would be as good as any other */
async function updateKeys(folder: string): Promise<readonly KeyObject[]> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (errnoOf(error) === "ENOENT") return [];
    throw new PicoletError("invalid", `cannot read ${folder}`, { cause: error });
  });
  const files = names.filter((name) => name.endsWith(".pem")).slice(0, MAX_KEYS);
  if (files.length === 0)
    throw new PicoletError(
      "invalid",
      `this board trusts no key for packages: put the publisher's public key (Ed25519, PEM) into ${folder}/NAME.pem`,
    );
  return await Promise.all(files.map((name) => keyIn(join(folder, name))));
}

async function keyIn(path: string): Promise<KeyObject> {
  try {
    const key = createPublicKey(await readFile(path));
    if (key.asymmetricKeyType === "ed25519") return key;
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the key ${path}`, { cause });
  }
  throw new PicoletError("invalid", `the key ${path} is no Ed25519 key`);
}

export function isSigned(content: Buffer, signature: string, keys: readonly KeyObject[]): boolean {
  const bytes = Buffer.from(signature.slice(0, MAX_SIGNATURE_LENGTH), "base64");
  return bytes.length === 64 && keys.some((key) => verify(null, content, key, bytes));
}

interface PackageFields {
  readonly package: string;
  readonly version: string;
  readonly architecture: string;
}

async function fieldsOf(run: RunCommand, path: string, signal: AbortSignal): Promise<PackageFields> {
  const result = await run(["dpkg-deb", "--field", path, "Package", "Version", "Architecture"], signal);
  const field = (name: string): string | undefined => new RegExp(`^${name}: (\\S+)$`, "m").exec(result.stdout)?.[1];
  const [name, version, architecture] = [field("Package"), field("Version"), field("Architecture")];
  if (result.exitCode !== 0 || !name || !version || !architecture)
    throw new PicoletError("invalid", `it is no Debian package: ${complaintOf(result)}`);
  return { package: name, version, architecture };
}

/**
 * The package that runs, to go back to: the one that the last update installed, else made again of what is installed,
 * as dpkg-repack(1) does.
 */
async function keepPrevious(run: RunCommand, task: PackageTask, sizeBytes: number, signal: AbortSignal): Promise<void> {
  const { directory } = task;
  const previous = join(directory, PREVIOUS_PACKAGE);
  for (const known of [CURRENT_PACKAGE, PREVIOUS_PACKAGE]) {
    const path = join(directory, known);
    const fields = await fieldsOf(run, path, signal).catch(ignore("there is no such package, or it was cut off"));
    if (fields?.version !== task.version) continue;
    if (known === CURRENT_PACKAGE) await store(previous, (to) => copyFile(path, to));
    return;
  }
  await checkRoom(directory, sizeBytes * ROOM_FACTOR);
  const stage = join(directory, "repack");
  await rm(stage, { recursive: true, force: true });
  await mkdir(join(stage, "DEBIAN"), { recursive: true, mode: 0o755 });
  try {
    await ran(run, ["sh", "-euc", UNPACKED, "sh", NAME, stage], "copy the installed package", signal);
    await store(previous, async (to) => {
      const build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", stage, to];
      await ran(run, build, "pack the installed package", signal);
    });
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
}

/** Copies the package `$1` into the folder `$2`: its files, its scripts, and its control file without dpkg's own fields. */
const UNPACKED = `
dpkg-query --listfiles "$1" | sed 's|^/|./|' | tar -C / --no-recursion -cf - -T - | tar -C "$2" -xpf -
for name in preinst postinst prerm postrm conffiles triggers md5sums; do
  file=$(dpkg-query --control-path "$1" "$name" 2>/dev/null || true)
  if [ -n "$file" ]; then cp -p "$file" "$2/DEBIAN/$name"; fi
done
dpkg-query --status "$1" | awk '/^[^ ]/ { own = /^(Status|Conffiles|Config-Version):/ } !own' >"$2/DEBIAN/control"
`;

async function ran(run: RunCommand, command: readonly string[], what: string, signal: AbortSignal): Promise<void> {
  const result = await run(command, signal);
  if (result.exitCode === 0) return;
  throw new PicoletError("failed", `cannot ${what}: ${complaintOf(result)}`, { retryable: true });
}

/** The file is whole on the disk, or not there. */
async function store(path: string, write: (to: string) => Promise<void>): Promise<void> {
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  await write(temporary);
  await using file = await open(temporary, "r+");
  await file.sync();
  await rename(temporary, path);
}
