export const DEFAULT_CONFIG_PATH = "/etc/picolet/config.yaml";
export const DEFAULT_ROOT_DIR = "/var/lib/picolet";
