/**
 * The table of `picolet.yaml`, the file that a board's owner writes: each field with its kind, and what it means. The
 * schema and the table in docs/install.md follow. Names are those of the agent's configuration where it has the thing.
 */
import { ACCESS_LEVELS } from "@picolet/agent/cli/context/access.ts";
import type { FieldTable, Given } from "@picolet/agent/config/configuration-fields.ts";
import type { Documentation } from "@picolet/agent/config/field-documentation.ts";

const ADDRESSING = {
  dhcp: { kind: "flag" },
  address: { kind: "textOrTexts" },
  gateway: { kind: "textOrTexts" },
  dns: { kind: "textOrTexts" },
} as const satisfies FieldTable;

const ACCESS = { kind: "choice", choices: ACCESS_LEVELS } as const;

/** As IEEE 802.1Q has them. */
export const MAX_VLAN_ID = 4094;

export const BOARD_FILE_FIELDS = {
  hub: {
    fields: {
      server: { kind: "textOrTexts" },
      url: { kind: "textOrTexts" },
      token: { kind: "text" },
      caHash: { kind: "textOrTexts" },
      proxy: { kind: "text" },
    },
  },
  node: {
    fields: {
      name: { kind: "text" },
      nameRule: { kind: "text" },
      labels: { kind: "textMap" },
      taints: {
        items: {
          key: { kind: "text", isRequired: true },
          value: { kind: "text" },
          effect: { kind: "text", isRequired: true },
        },
      },
    },
  },
  network: {
    fields: {
      hostname: { kind: "text" },
      ethernet: { fields: { interface: { kind: "text" }, ...ADDRESSING } },
      vlans: { items: { id: { kind: "int32", isRequired: true, min: 1, max: MAX_VLAN_ID }, ...ADDRESSING } },
      wifi: {
        items: {
          ssid: { kind: "text", isRequired: true },
          password: { kind: "text" },
          country: { kind: "text" },
          hidden: { kind: "flag" },
          ...ADDRESSING,
        },
      },
    },
  },
  time: { fields: { servers: { kind: "textOrTexts" }, zone: { kind: "text" } } },
  proxy: { fields: { httpProxy: { kind: "text" }, httpsProxy: { kind: "text" }, noProxy: { kind: "textOrTexts" } } },
  ssh: { fields: { authorizedKeys: { kind: "textOrTexts" }, access: ACCESS } },
  registries: {
    items: {
      host: { kind: "text", isRequired: true },
      mirrors: { kind: "texts" },
      insecure: { kind: "flag" },
      ca: { kind: "text" },
      username: { kind: "text" },
      password: { kind: "text" },
    },
  },
  staticPods: { kind: "opaques" },
  preload: {
    fields: {
      images: { kind: "texts" },
      components: { items: { file: { kind: "text", isRequired: true }, name: { kind: "text", isRequired: true } } },
    },
  },
  console: { fields: { login: { kind: "flag" }, access: ACCESS } },
  watchdog: { fields: { timeout: { kind: "duration" } } },
  config: { kind: "opaque" },
} as const satisfies FieldTable;

export type BoardFile = Given<typeof BOARD_FILE_FIELDS>;
export type Addressing = Given<typeof ADDRESSING>;

/** One a line, as a `.pub` file or an `authorized_keys` has them. */
export const keyLines = (keys: readonly string[]): readonly string[] =>
  keys
    .flatMap((each) => each.split(/\r?\n/))
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));

const addressing = (path: string): Readonly<Record<string, Documentation>> => ({
  [`${path}.dhcp`]: { meaning: "Ask the network for addresses.", byDefault: "`true` without `address`" },
  [`${path}.address`]: 'Fixed addresses with their prefix: `"192.168.1.20/24"`.',
  [`${path}.gateway`]: "The router of these addresses.",
  [`${path}.dns`]: "Name servers, before those of DHCP.",
});

export const BOARD_FILE_DOCUMENTATION: Readonly<Record<string, Documentation>> = {
  hub: "The hub to join. Without it the board runs its static pods alone.",
  "hub.server": "`hub.example.com`, or its URL; several for one hub are tried in order.",
  "hub.url": "Another name of `hub.server`.",
  "hub.token":
    "As `picolet-hub token create` prints it. It is wiped from this file once the board has joined; a new one makes it join again.",
  "hub.caHash": "As `picolet-hub ca hash` prints it; needed with a token.",
  "hub.proxy": "An HTTP proxy on the way to the hub: `http://proxy.example:3128`.",
  node: "The board as a node of the fleet.",
  "node.name": "Its name.",
  "node.nameRule": {
    meaning:
      "Makes the name of the board's own numbers, so that one file serves many boards: `serial`, `mac`, or a pattern such as `edge-{serial:8}` or `edge-{mac:6}` (the last 8 or 6 characters). A name that a rule has given stays while the rule stays.",
    byDefault: "picolet-{mac:6}",
  },
  "node.labels": "Labels with which it registers (`nodeLabels`).",
  "node.taints": "Taints with which it registers (`registerWithTaints`).",
  "node.taints[].key": "Its key.",
  "node.taints[].value": "Its value.",
  "node.taints[].effect": "`NoSchedule`, `PreferNoSchedule` or `NoExecute`.",
  network: "Without it: DHCP on every cable.",
  "network.hostname": { meaning: "The host name.", byDefault: "the first part of the node's name" },
  "network.ethernet": "The cable.",
  "network.ethernet.interface": { meaning: "The interface, or a pattern: `end0`, `en*`.", byDefault: "all of them" },
  ...addressing("network.ethernet"),
  "network.vlans": "VLANs on the cable.",
  "network.vlans[].id": "Its number.",
  ...addressing("network.vlans[]"),
  "network.wifi": "Wireless networks, the preferred one first.",
  "network.wifi[].ssid": "Its name.",
  "network.wifi[].password": "Its passphrase of 8 to 63 characters (WPA2, WPA3), or 64 hexadecimal digits; none: open.",
  "network.wifi[].country": "The country whose radio rules hold, in two letters; the same in all of them.",
  "network.wifi[].hidden": { meaning: "It does not announce its name.", byDefault: "false" },
  ...addressing("network.wifi[]"),
  time: "The clock.",
  "time.servers": { meaning: "NTP servers.", byDefault: "those of DHCP, else Debian's" },
  "time.zone": { meaning: "For what people read on the console: `Europe/Berlin`.", byDefault: "UTC" },
  proxy: "For pulls of images and components. The way to the hub has one of its own, `hub.proxy`.",
  "proxy.httpProxy": "`http://proxy.example:3128`, for `http` addresses.",
  "proxy.httpsProxy": "The same for `https` addresses.",
  "proxy.noProxy": "Hosts and networks that are reached directly.",
  ssh: "Without a key nothing listens for SSH.",
  "ssh.authorizedKeys": "Public keys that may log in as `picolet`, one a line.",
  "ssh.access": { meaning: "The commands that they may run, as `console.access`.", byDefault: "view" },
  registries: "Registries of images and components that need more than HTTPS with a known CA.",
  "registries[].host": "As images name it, with its port.",
  "registries[].mirrors": "URLs that are asked first.",
  "registries[].insecure": { meaning: "Plain HTTP.", byDefault: "false" },
  "registries[].ca": "Certificates in PEM that are trusted besides.",
  "registries[].username": "The user.",
  "registries[].password": "The user's password or token.",
  staticPods: "Pods that run without any hub: whole manifests.",
  preload: "Files brought with the card, so that the board needs no network for them.",
  "preload.images": "Archives of images (OCI layout or `docker save`), by their path on this partition.",
  "preload.components": "Components.",
  "preload.components[].file": "The path on this partition.",
  "preload.components[].name": "The name that pods use: `registry.example/app:1`.",
  console: "Serial console and screen.",
  "console.login": {
    meaning: "Show `edgectl status` there and take edgectl's commands; `false`: messages only.",
    byDefault: "true",
  },
  "console.access": {
    meaning:
      "The commands that run there: `view` only reads, `operate` also changes what runs, `admin` runs all, which is as good as root.",
    byDefault: "view",
  },
  watchdog: "The hardware watchdog.",
  "watchdog.timeout": {
    meaning:
      "A board whose init hangs longer is reset, one whose kernel hangs by what its hardware can count to, 15 s on a Raspberry Pi; `0s`: never.",
    byDefault: "60s",
  },
  config: "Any other field of the agent's configuration (docs/configuration.md), such as `maxPods`.",
};
