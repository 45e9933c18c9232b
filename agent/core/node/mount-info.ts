/** `/proc/<pid>/mountinfo`, proc(5): what is mounted where, in the order in which the kernel lists it. */

export interface MountEntry {
  /** `major:minor` of the file system. */
  readonly device: string;
  /** The folder of the file system that the mount point shows. */
  readonly root: string;
  /** Absolute, with the kernel's octal escapes undone. */
  readonly mountPoint: string;
  /** `cgroup`, `tmpfs` … */
  readonly fileSystem: string;
  /** What is mounted below it is passed on to its peers. */
  readonly isShared: boolean;
  /** Options of the file system as a whole; for cgroup v1 its controllers are among them. */
  readonly superOptions: readonly string[];
}

/** Lines that differ from proc(5) are left out: a newer kernel may have other lines. */
export function parseMountInfo(text: string): MountEntry[] {
  const entries: MountEntry[] = [];
  for (const line of text.split("\n")) {
    const fields = line.split(" ");
    // Optional fields stand between the sixth and a lone hyphen.
    const separator = fields.indexOf("-", 6);
    const [, , device, root, mountPoint] = fields;
    const fileSystem = fields[separator + 1];
    const superOptions = fields[separator + 3];
    if (separator < 0 || device === undefined || root === undefined || mountPoint === undefined) continue;
    if (fileSystem === undefined || superOptions === undefined) continue;
    entries.push({
      device,
      root: unescapeOctal(root),
      mountPoint: unescapeOctal(mountPoint),
      fileSystem,
      isShared: fields.slice(6, separator).some((field) => field.startsWith("shared:")),
      superOptions: superOptions.split(","),
    });
  }
  return entries;
}

/** What is mounted on `folder` or below it, in the order in which it can be unmounted: a mount on top comes first. */
export function mountPointsWithin(entries: readonly MountEntry[], folder: string): string[] {
  const prefix = folder.endsWith("/") ? folder : `${folder}/`;
  return entries
    .map((entry) => entry.mountPoint)
    .filter((mountPoint) => mountPoint === folder || mountPoint.startsWith(prefix))
    .reverse();
}

/** The kernel writes space, tab, newline and backslash as `\` and three octal digits of the byte. */
function unescapeOctal(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
