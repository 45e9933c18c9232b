import { readFileSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type HubPins, trustOf } from "./hub-trust.ts";

export interface ConfiguredPins {
  readonly caHashes: readonly string[];
  /** Path of PEM; "" for none. */
  readonly caFile: string;
}

/** The configured trust for first contact with the hub. Its file is read once, when it is needed. */
export class ConfiguredTrust {
  readonly #configured: ConfiguredPins;
  #pins: HubPins | undefined;

  constructor(configured: ConfiguredPins) {
    this.#configured = configured;
  }

  /** @throws `invalid` when the CA file cannot be read */
  read(): HubPins {
    const { caHashes, caFile } = this.#configured;
    try {
      this.#pins ??= { caHashes, ca: caFile === "" ? "" : readFileSync(caFile, "utf8") };
    } catch (error) {
      throw new PicoletError("invalid", `cannot read hub.caFile ${caFile}`, { cause: error });
    }
    return this.#pins;
  }

  /** @returns whether the configured CA differs from the one that the current trust comes from */
  isOther({ trust }: { readonly trust: string }): boolean {
    try {
      return trust !== trustOf(this.read());
    } catch {
      return false;
    }
  }
}
