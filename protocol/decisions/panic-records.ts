/** Where systemd-pstore(8) keeps the last words of kernels. */
export const PANIC_RECORDS = "/var/lib/systemd/pstore";

/** Bounds the search: entries of each folder that are taken. A board that panics all day has more. */
const MAX_ENTRIES = 256;

/**
 * Paths that a record may have: `TIME/COUNT/dmesg.txt` where systemd knows the format and joins the pieces, `dmesg-*`
 * where it does not. The newest are last by name.
 * @param list the names in a folder; none where it is no folder
 */
export function panicRecords(folder: string, list: (path: string) => readonly string[]): readonly string[] {
  const namesIn = (path: string): readonly string[] => list(path).toSorted().slice(-MAX_ENTRIES);
  return namesIn(folder).flatMap((name) => {
    const path = `${folder}/${name}`;
    if (name.startsWith("dmesg-")) return [path];
    return ["", ...namesIn(path).map((count) => `/${count}`)].map((count) => `${path}${count}/dmesg.txt`);
  });
}
