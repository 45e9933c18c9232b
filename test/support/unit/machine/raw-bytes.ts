/** Searches what lies on a disk for what must not be there in plain. */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** Every file below `folder`; folders of other file systems (a tmpfs) are left out. */
export function filesOnDisk(folder: string): string[] {
  const { dev } = statSync(folder);
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return statSync(path).dev === dev ? filesOnDisk(path) : [];
    return entry.isFile() ? [path] : [];
  });
}

/** Files below `folder` that hold `secret` as it is, in base64 at any offset, or in UTF-16. */
export function filesWith(folder: string, secret: string): string[] {
  // Base64 of three alignments, without the characters that depend on what is beside it.
  const aligned = [0, 1, 2].map((offset) => {
    const text = Buffer.from(`${"x".repeat(offset)}${secret}`).toString("base64");
    return Buffer.from(text.slice(offset === 0 ? 0 : 4, -4));
  });
  const forms = [Buffer.from(secret), Buffer.from(secret, "utf16le"), ...aligned];
  return filesOnDisk(folder).filter((path) => {
    const bytes = readFileSync(path);
    return forms.some((form) => bytes.includes(form));
  });
}
