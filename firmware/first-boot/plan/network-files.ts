/** Files of systemd-networkd and wpa_supplicant. Every value was validated: none can end a line. */
import type { Addressing, BoardFile } from "./board-file-fields.ts";
import { NETWORK, WIFI } from "./places.ts";

type Network = NonNullable<BoardFile["network"]>;

export interface PlannedFile {
  readonly content: string;
  readonly mode: number;
}

/** networkd runs as a user of its own. */
const READABLE = 0o644;
const SECRET = 0o600;
/** A cable is preferred to a radio. */
const WIFI_METRIC = 600;
const CABLES = "en* eth* end*";
const vlanName = (id: number): string => `vlan${id}`;

/** By path below `/run`. */
export function networkFiles({ ethernet, vlans = [], wifi = [] }: Network): ReadonlyMap<string, PlannedFile> {
  const files = new Map<string, PlannedFile>();
  const add = (name: string, lines: readonly string[]): void => {
    files.set(`${NETWORK}/${name}`, { content: `${lines.join("\n")}\n`, mode: READABLE });
  };
  if (ethernet !== undefined || vlans.length > 0) {
    const match = [
      `Name=${ethernet?.interface ?? CABLES}`,
      ...(ethernet?.interface === undefined ? ["Type=ether"] : []),
    ];
    add("50-picolet-ethernet.network", [
      ...["[Match]", ...match, "", "[Network]"],
      ...vlans.map(({ id }) => `VLAN=${vlanName(id)}`),
      ...networkLines(ethernet ?? {}),
    ]);
  }
  for (const vlan of vlans) {
    add(`50-picolet-${vlanName(vlan.id)}.netdev`, [
      ...["[NetDev]", `Name=${vlanName(vlan.id)}`, "Kind=vlan", "", "[VLAN]", `Id=${vlan.id}`],
    ]);
    add(`50-picolet-${vlanName(vlan.id)}.network`, [
      ...["[Match]", `Name=${vlanName(vlan.id)}`, "", "[Network]", ...networkLines(vlan)],
    ]);
  }
  wifi.forEach((each, index) => {
    add(`50-picolet-wifi-${String(index).padStart(2, "0")}.network`, [
      ...["[Match]", "WLANInterfaceType=station", `SSID=${quoted(each.ssid)}`, "", "[Network]"],
      ...networkLines(each, WIFI_METRIC),
    ]);
  });
  if (wifi.length > 0) files.set(WIFI, { content: wpaSupplicant(wifi), mode: SECRET });
  return files;
}

/** systemd's rules: words in quotes, with C escapes; `%` is not expanded in [Match]. */
const quoted = (text: string): string => `"${text.replaceAll(/["\\]/g, "\\$&")}"`;

/** The section that is open is [Network]. */
function networkLines({ dhcp, address = [], gateway = [], dns = [] }: Addressing, metric?: number): readonly string[] {
  const asks = dhcp ?? address.length === 0;
  return [
    `DHCP=${asks ? "yes" : "no"}`,
    ...address.map((each) => `Address=${each}`),
    ...dns.map((each) => `DNS=${each}`),
    ...gateway.flatMap((each) => [
      "",
      "[Route]",
      `Gateway=${each}`,
      ...(metric === undefined ? [] : [`Metric=${metric}`]),
    ]),
    // The board's name is its node's.
    ...(asks ? ["", "[DHCPv4]", "UseHostname=no", ...(metric === undefined ? [] : [`RouteMetric=${metric}`])] : []),
  ];
}

function wpaSupplicant(networks: NonNullable<Network["wifi"]>): string {
  const country = networks.find((each) => each.country !== undefined)?.country;
  const blocks = networks.map(({ ssid, password = "", hidden }, index) =>
    [
      "network={",
      // In hexadecimal digits no character needs an escape.
      `\tssid=${Buffer.from(ssid).toString("hex")}`,
      ...(hidden === true ? ["\tscan_ssid=1"] : []),
      ...securityLines(password),
      `\tpriority=${networks.length - index}`,
      "}",
    ].join("\n"),
  );
  return `${[...(country === undefined ? [] : [`country=${country}`]), "update_config=0", ...blocks].join("\n")}\n`;
}

/** The passphrase ends at the last quote of its line, so a quote in it needs no escape. */
function securityLines(password: string): readonly string[] {
  if (password === "") return ["\tkey_mgmt=NONE"];
  // A key that was computed is of no use to WPA3, which needs the passphrase.
  if (password.length === 64) return ["\tkey_mgmt=WPA-PSK WPA-PSK-SHA256", `\tpsk=${password}`, "\tieee80211w=1"];
  return ["\tkey_mgmt=WPA-PSK WPA-PSK-SHA256 SAE", `\tpsk="${password}"`, "\tieee80211w=1"];
}
