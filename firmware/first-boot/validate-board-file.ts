/** Checks what neither the types of `picolet.yaml` nor the agent's own rules cover. */
import { isIP } from "node:net";
import { readManifest } from "@picolet/agent/sources/manifests/manifest-reader.ts";
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { dnsLabelProblems, dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { type Addressing, type BoardFile, keyLines, MAX_VLAN_ID } from "./plan/board-file-fields.ts";

/** Each is tried in turn; wpa_supplicant scans for all of them. */
const MAX_WIFI = 16;
const MAX_VLANS = 16;
const MAX_ADDRESSES = 16;
const MAX_SERVERS = 8;
const MAX_KEYS = 64;
const MAX_PODS = 64;
const MAX_PRELOADED = 64;
/** Below it a busy card would look like a hung board; above it a watchdog is of no use. */
const WATCHDOG_SECONDS = { min: 5, max: 600 } as const;

export function validateBoardFile(file: BoardFile, problems: FieldProblems): void {
  const { network = {}, time = {}, ssh = {}, preload = {}, watchdog = {} } = file;
  if (file.node?.name !== undefined && file.node.nameRule !== undefined)
    problems.forbidden("node.nameRule", "may not be specified together with node.name");
  if (file.node?.name === "") problems.required("node.name", "leave the field out for a name by rule");
  if (file.hub !== undefined && (file.hub.server ?? file.hub.url ?? []).length === 0)
    problems.required("hub.server", 'the hub\'s name or URL, such as "hub.example.com"');
  if (network.hostname !== undefined)
    problems.invalidAll("network.hostname", network.hostname, dnsLabelProblems(network.hostname));
  validateEthernet(network, problems);
  validateWifi(network.wifi ?? [], problems);
  atMost("time.servers", time.servers ?? [], MAX_SERVERS, problems);
  (time.servers ?? []).forEach((server, index) => {
    if (isIP(server) === 0 && dnsSubdomainProblems(server).length > 0)
      problems.invalid(`time.servers[${index}]`, server, "must be a host name or an address");
  });
  validateZone(time.zone, problems);
  validateProxy(file.proxy ?? {}, problems);
  validateKeys(ssh.authorizedKeys ?? [], problems);
  validateRegistryUsers(file.registries ?? [], problems);
  validateStaticPods(file.staticPods ?? [], problems);
  validatePreload(preload, problems);
  const timeout = (watchdog.timeout ?? 0) / 1000;
  if (timeout !== 0 && !(timeout >= WATCHDOG_SECONDS.min && timeout <= WATCHDOG_SECONDS.max))
    problems.add("watchdog.timeout", `Invalid value: ${timeout}s: must be 0s, or between 5s and 10m`);
}

function atMost(path: string, list: readonly unknown[], max: number, problems: FieldProblems): void {
  if (list.length > max) problems.tooMany(path, list.length, max);
}

function validateEthernet({ ethernet, vlans = [] }: NonNullable<BoardFile["network"]>, problems: FieldProblems): void {
  if (ethernet !== undefined) {
    const { interface: name } = ethernet;
    if (name !== undefined && !/^[A-Za-z0-9*?][A-Za-z0-9.*?_-]{0,14}$/.test(name))
      problems.invalid(
        "network.ethernet.interface",
        name,
        'must be an interface such as "end0", or a pattern such as "en*"',
      );
    validateAddressing(ethernet, "network.ethernet", problems);
  }
  atMost("network.vlans", vlans, MAX_VLANS, problems);
  vlans.forEach((vlan, index) => {
    const path = `network.vlans[${index}]`;
    if (!(vlan.id >= 1 && vlan.id <= MAX_VLAN_ID))
      problems.invalid(`${path}.id`, vlan.id, `must be between 1 and ${MAX_VLAN_ID}, inclusive`);
    else if (vlans.findIndex(({ id }) => id === vlan.id) < index) problems.duplicate(`${path}.id`, vlan.id);
    validateAddressing(vlan, path, problems);
  });
}

function validateAddressing(each: Addressing, path: string, problems: FieldProblems): void {
  const { dhcp, address = [], gateway = [], dns = [] } = each;
  for (const [name, list] of Object.entries({ address, gateway, dns }))
    atMost(`${path}.${name}`, list, MAX_ADDRESSES, problems);
  const at = (name: string, list: readonly string[], index: number): string =>
    list.length === 1 ? `${path}.${name}` : `${path}.${name}[${index}]`;
  address.forEach((text, index) => {
    const [ip = "", prefix = "", more] = text.split("/");
    const family = isIP(ip);
    const isPrefix = /^\d{1,3}$/.test(prefix) && Number(prefix) >= 1 && Number(prefix) <= (family === 4 ? 32 : 128);
    if (family === 0 || more !== undefined)
      problems.invalid(
        at("address", address, index),
        text,
        'must be an address with its prefix, such as "192.168.1.20/24"',
      );
    else if (!isPrefix)
      problems.invalid(
        at("address", address, index),
        text,
        `must have the length of its prefix: "${ip}/${family === 4 ? 24 : 64}"`,
      );
  });
  for (const [name, list] of [
    ["gateway", gateway],
    ["dns", dns],
  ] as const)
    list.forEach((text, index) => {
      if (isIP(text) === 0) problems.invalid(at(name, list, index), text, 'must be an address, such as "192.168.1.1"');
    });
  if (gateway.length > 0 && address.length === 0) problems.required(`${path}.address`, "a gateway is given");
  if (dhcp === false && address.length === 0) problems.required(`${path}.address`, "dhcp is false");
}

function validateWifi(networks: NonNullable<NonNullable<BoardFile["network"]>["wifi"]>, problems: FieldProblems): void {
  atMost("network.wifi", networks, MAX_WIFI, problems);
  const [country] = networks.map((each) => each.country).filter((each) => each !== undefined);
  networks.forEach((each, index) => {
    const path = `network.wifi[${index}]`;
    const bytes = Buffer.byteLength(each.ssid);
    if (bytes === 0 || bytes > 32 || /\p{Cc}/u.test(each.ssid))
      problems.add(`${path}.ssid`, "Invalid value: must be the name of a network, of 1 to 32 bytes");
    else if (networks.findIndex(({ ssid }) => ssid === each.ssid) < index)
      problems.add(`${path}.ssid`, "Duplicate value: the network is named before");
    const { password = "" } = each;
    if (password !== "" && !/^(?:[ -~]{8,63}|[0-9A-Fa-f]{64})$/.test(password))
      problems.add(
        `${path}.password`,
        `Invalid value: must have 8 to 63 characters of ASCII, or 64 hexadecimal digits; it has ${[...password].length}`,
      );
    if (each.country !== undefined && !/^[A-Z]{2}$/.test(each.country))
      problems.invalid(`${path}.country`, each.country, 'must be two capital letters, such as "DE"');
    else if (each.country !== undefined && each.country !== country)
      problems.invalid(
        `${path}.country`,
        each.country,
        `must be ${country}, as in the network before: a board is in one country`,
      );
    validateAddressing(each, path, problems);
  });
}

function validateZone(zone: string | undefined, problems: FieldProblems): void {
  if (zone === undefined || zone === "") return;
  const isName = /^[A-Za-z][A-Za-z0-9_+-]*(?:\/[A-Za-z0-9][A-Za-z0-9_+-]*){0,2}$/.test(zone);
  let isKnown = isName;
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
  } catch {
    isKnown = false;
  }
  if (!isKnown) problems.invalid("time.zone", zone, 'must be a time zone such as "Europe/Berlin" or "UTC"');
}

/** A parser of URLs leaves out line ends, which would end a line of a file too. */
function validateProxy(proxy: NonNullable<BoardFile["proxy"]>, problems: FieldProblems): void {
  for (const [name, value] of Object.entries(proxy))
    if (![value].flat().every((text) => /^[!-~]*$/.test(text ?? "")))
      problems.add(`proxy.${name}`, "Invalid value: must have neither spaces nor characters beyond ASCII");
}

/** As sshd takes them: a type, base64, a comment. Options would let a key leave the restricted shell. */
const KEY =
  /^(ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) ([A-Za-z0-9+/]+={0,2})(?: [^\p{Cc}]*)?$/u;

function validateKeys(texts: readonly string[], problems: FieldProblems): void {
  atMost("ssh.authorizedKeys", keyLines(texts), MAX_KEYS, problems);
  const located = texts.flatMap((text, index) => keyLines([text]).map((key) => [index, key] as const));
  for (const [index, key] of located) {
    const path = texts.length === 1 ? "ssh.authorizedKeys" : `ssh.authorizedKeys[${index}]`;
    if (key.includes("PRIVATE KEY")) {
      problems.add(
        path,
        "Invalid value: this is a private key, which must never leave its owner: write the .pub file's line",
      );
      return;
    }
    const found = KEY.exec(key);
    const [, type = "", data = ""] = found ?? [];
    // The type is in the data again.
    const inside = Buffer.from(data, "base64")
      .subarray(4, 4 + type.length)
      .toString("latin1");
    if (found === null || inside !== type)
      problems.invalid(path, key, 'must be one line of a .pub file, such as "ssh-ed25519 AAAA… name"');
  }
}

function validateRegistryUsers(registries: NonNullable<BoardFile["registries"]>, problems: FieldProblems): void {
  registries.forEach(({ username, password, ca }, index) => {
    const path = `registries[${index}]`;
    if ((username === undefined) !== (password === undefined))
      problems.required(
        `${path}.${username === undefined ? "username" : "password"}`,
        "one is of no use without the other",
      );
    if (username?.includes(":")) problems.add(`${path}.username`, "Invalid value: must be without a colon");
    if (ca !== undefined && !/^-----BEGIN CERTIFICATE-----\r?\n[\s\S]*-----END CERTIFICATE-----\s*$/.test(ca))
      problems.add(
        `${path}.ca`,
        'Invalid value: must be PEM ("-----BEGIN CERTIFICATE-----"), as a block after "ca: |"',
      );
  });
}

function validateStaticPods(pods: readonly Record<string, unknown>[], problems: FieldProblems): void {
  atMost("staticPods", pods, MAX_PODS, problems);
  const names = new Set<string>();
  pods.forEach((manifest, index) => {
    const at = `staticPods[${index}]`;
    const parsed = parsePod(manifest);
    if (!parsed.ok) {
      for (const { path, message } of parsed.problems) problems.add(path === "" ? at : `${at}.${path}`, message);
      return;
    }
    const { namespace, name } = parsed.pod.metadata;
    if (names.has(`${namespace}/${name}`)) problems.duplicate(`${at}.metadata.name`, name);
    names.add(`${namespace}/${name}`);
    const whole = readManifest(JSON.stringify(manifest));
    if (!whole.ok) for (const { message } of whole.problems) problems.add(at, message);
  });
}

function validatePreload(
  { images = [], components = [] }: NonNullable<BoardFile["preload"]>,
  problems: FieldProblems,
): void {
  atMost("preload.images", images, MAX_PRELOADED, problems);
  atMost("preload.components", components, MAX_PRELOADED, problems);
  const files = [
    ...images.map((file, index) => [`preload.images[${index}]`, file] as const),
    ...components.map(({ file }, index) => [`preload.components[${index}].file`, file] as const),
  ];
  for (const [path, file] of files)
    if (file === "" || /^[/\\]|\p{Cc}|(?:^|[/\\])\.\.(?:[/\\]|$)/u.test(file))
      problems.invalid(path, file, 'must be a path on this partition, such as "preload/app.tar"');
  components.forEach(({ name }, index) => {
    if (!/^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$/.test(name))
      problems.invalid(
        `preload.components[${index}].name`,
        name,
        'must be the name that pods use, such as "registry.example/app:1"',
      );
  });
}
