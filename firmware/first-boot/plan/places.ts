/** Where the first boot writes. Below `/run` all is laid down again at each boot, of what is kept on the data partition. */

/** On the data partition: what was applied, and what is laid into `/run`. */
export const KEPT = "/data/first-boot";
export const STATE_FILE = `${KEPT}/state.json`;
/** Below it are files as they are below `/run`. */
export const KEPT_RUN = `${KEPT}/run`;

/** Below `/run`. */
export const BOARD = "picolet-board";
export const HOSTNAME = `${BOARD}/hostname`;
export const AUTHORIZED_KEYS = `${BOARD}/authorized_keys`;
export const PROXY = `${BOARD}/proxy.env`;
export const WIFI = `${BOARD}/wpa_supplicant.conf`;
export const ZONE = `${BOARD}/zone`;
/** The field `preload` as JSON; picolet-preload.service runs only where it is. */
export const PRELOAD = `${BOARD}/preload.json`;
export const CONSOLE_OFF = `${BOARD}/console-off`;
/** The level of access on the console, and over SSH; missing: `view`. */
export const CONSOLE_ACCESS = `${BOARD}/console-access`;
export const SSH_ACCESS = `${BOARD}/ssh-access`;
export const CERTIFICATES = `${BOARD}/certs.d`;
export const REGISTRY_CAS = `${BOARD}/registry-ca`;
export const NETWORK = "systemd/network";
export const TIMESYNCD = "systemd/timesyncd.conf.d/50-picolet.conf";
export const WATCHDOG = "systemd/system.conf.d/50-picolet.conf";

export const AGENT_CONFIGURATION = "/etc/picolet/config.yaml";
export const JOIN_TOKEN = "/etc/picolet/join-token";
export const MANIFESTS = "/etc/picolet/manifests";
export const REGISTRY_CREDENTIALS = "/var/lib/picolet/config.json";
export const IDENTITY = "/var/lib/picolet/identity/identity.pem";

/** Fields that the image gives the agent: YAML in the read-only system. */
export const AGENT_DEFAULTS = "/usr/share/picolet-image/agent.yaml";
export const ZONES = "/usr/share/zoneinfo";
