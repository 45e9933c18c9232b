import { readFileSync, watch } from "node:fs";
import { basename, dirname } from "node:path";

export interface JoinTokenInit {
  /** "" for none. */
  readonly token: string;
  /** Path of a file that holds nothing but the token; "" for none. It may come later, and change. */
  readonly tokenFile: string;
}

/** Enough for a token and the line it is on; a larger file is none of a token. */
const MAX_TOKEN_LENGTH = 200;

/** @returns "" when there is none, yet */
export function readJoinToken({ token, tokenFile }: JoinTokenInit): string {
  if (tokenFile === "") return token;
  try {
    const text = readFileSync(tokenFile, "utf8").trim();
    return text === "" || text.length > MAX_TOKEN_LENGTH ? token : text;
  } catch {
    return token;
  }
}

/**
 * Calls `changed` whenever the file may have come or changed. Without inotify, or its folder: never; it is read anyway.
 */
export function watchJoinToken({ tokenFile }: JoinTokenInit, changed: () => void): Disposable {
  if (tokenFile === "") return { [Symbol.dispose]: () => undefined };
  try {
    const name = basename(tokenFile);
    const watcher = watch(dirname(tokenFile), { persistent: false }, (_, file) => {
      if (file === null || file === name) changed();
    });
    watcher.on("error", () => watcher.close());
    return { [Symbol.dispose]: () => watcher.close() };
  } catch {
    return { [Symbol.dispose]: () => undefined };
  }
}
