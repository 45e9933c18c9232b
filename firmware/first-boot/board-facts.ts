/** Reads the facts of a board that need no configuration: its serial number, its network cards, its release. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface BoardFacts {
  /** Lower case; undefined: the board has none. */
  readonly serial: string | undefined;
  /** Twelve hexadecimal digits; undefined: no network card was found. */
  readonly mac: string | undefined;
  /** Fields of `/etc/picolet-release`. */
  readonly release: Readonly<Record<string, string>>;
}

/** The device tree's first: that of DMI is often left as the factory had it. */
const SERIAL_FILES = ["/sys/firmware/devicetree/base/serial-number", "/sys/class/dmi/id/product_serial"];
const PLACEHOLDER = /^(?:0+|none|not specified|default string|to be filled by o\.?e\.?m\.?|system serial number)$/i;
const CARDS = "/sys/class/net";
/** linux/if_arp.h */
const ARPHRD_ETHER = "1";

export function readBoardFacts(root: string): BoardFacts {
  const read = (path: string): string => {
    try {
      return readFileSync(join(root, path), "utf8");
    } catch {
      return "";
    }
  };
  const serials = SERIAL_FILES.map((path) => read(path).replaceAll("\0", "").trim());
  return {
    serial: serials.find((each) => each !== "" && !PLACEHOLDER.test(each))?.toLowerCase(),
    mac: macOf(root, read),
    release: Object.fromEntries(
      [...read("/etc/picolet-release").matchAll(/^([A-Z]+)="?([^"\n]*)"?$/gm)].map(([, name = "", value = ""]) => [
        name,
        value,
      ]),
    ),
  };
}

/** Cables before radios, and the first by name: a card that is plugged in later does not come first. */
function macOf(root: string, read: (path: string) => string): string | undefined {
  const cards = namesIn(join(root, CARDS))
    // Bridges and tunnels have no device.
    .filter((name) => namesIn(join(root, CARDS, name)).includes("device"))
    .filter((name) => read(`${CARDS}/${name}/type`).trim() === ARPHRD_ETHER)
    .map((name) => {
      const isRadio = namesIn(join(root, CARDS, name)).some((each) => ["wireless", "phy80211"].includes(each));
      const isPluggedIn = /\/usb/.test(read(`${CARDS}/${name}/device/uevent`));
      return { name, rank: Number(isRadio) * 2 + Number(isPluggedIn) };
    })
    .sort((a, b) => a.rank - b.rank || (a.name < b.name ? -1 : 1));
  const [first] = cards;
  const mac = first === undefined ? "" : read(`${CARDS}/${first.name}/address`).trim().replaceAll(":", "");
  return /^[0-9a-f]{12}$/.test(mac) ? mac : undefined;
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
