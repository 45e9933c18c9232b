import { lstatSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder that is gone, with all in it, when the test's block ends. Nothing may be mounted in it by then. */
export class TempFolder implements Disposable {
  readonly path: string;

  /** @param parent unit tests have their temporary folder in memory; /var/tmp is on the disk */
  constructor(parent = tmpdir()) {
    this.path = mkdtempSync(join(parent, "picolet-test-"));
  }

  at(...names: readonly string[]): string {
    return join(this.path, ...names);
  }

  /**
   * Makes something at a path of random names without ever following a link: folders above are made, and nothing is
   * where one of them, or the name itself, is taken by anything but a folder.
   */
  plant(names: readonly string[], make: (path: string) => void): void {
    let path = this.path;
    for (const [index, name] of names.entries()) {
      path = join(path, name);
      const there = lstatSync(path, { throwIfNoEntry: false });
      if (index === names.length - 1 ? there !== undefined : there?.isDirectory() === false) return;
      if (index < names.length - 1 && there === undefined) mkdirSync(path);
    }
    make(path);
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
