/** Through which proxies components are pulled: as the configuration says, else as the agent's environment does. */
import type { Log } from "@picolet/protocol/ports.ts";
import { type ProxySettings, proxiesOf, proxyProblem } from "@picolet/runtime-wasm/shared/oci/proxies.ts";
import type { Configuration } from "../../config/configuration.ts";

export function registryProxies(
  configured: Configuration["wasm"]["proxy"],
  environment: Readonly<Record<string, string | undefined>>,
  log: Pick<Log, "warn">,
): ProxySettings {
  const { httpProxy = "", httpsProxy = "", noProxy = "" } = configured;
  if (`${httpProxy}${httpsProxy}${noProxy}` !== "") return { httpProxy, httpsProxy, noProxy };
  const settings = proxiesOf(environment);
  for (const name of ["httpProxy", "httpsProxy"] as const) {
    const reason = settings[name] === "" ? undefined : proxyProblem(settings[name]);
    if (reason !== undefined) log.warn("a proxy of the environment is not used", { variable: VARIABLES[name], reason });
  }
  return settings;
}

const VARIABLES = { httpProxy: "HTTP_PROXY", httpsProxy: "HTTPS_PROXY" } as const;
