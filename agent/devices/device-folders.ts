/** Folders in which device nodes come and go. */
import { type FSWatcher, globSync, watch } from "node:fs";
import { dirname } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";

/** udev makes a node, its links and its rights within this time. */
export const SETTLE = millis(300);
/** The interval of scans where the kernel reports no changes, such as of a link's folder that is not there yet. */
export const SCAN = seconds(30);

/** @param patterns paths are those that begin with `/` @returns the folders of the paths, USB's for `libusb`, and /dev */
export function foldersOf(patterns: readonly string[], root: string): readonly string[] {
  const paths = patterns.filter((each) => each.startsWith("/")).map((each) => root + dirname(each));
  const buses = patterns.some((each) => each.startsWith("libusb:")) ? globSync(`${root}/dev/bus/usb/*`) : [];
  return [...new Set([`${root}/dev`, ...paths, ...buses])];
}

/** A folder that is not there is left out. */
export function watchFolders(folders: readonly string[], onChange: () => void): readonly FSWatcher[] {
  return folders.flatMap((folder) => {
    try {
      const watcher = watch(folder, onChange);
      watcher.on("error", ignore("scans by time go on"));
      return [watcher];
    } catch {
      return [];
    }
  });
}
