/** Plugins as their authors write them: servers and clients of grpc-js on unix sockets, by the protocols' messages. */
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  type Client,
  credentials,
  loadPackageDefinition,
  makeGenericClientConstructor,
  Server,
  ServerCredentials,
  type ServiceClientConstructor,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

/** @param file beside this module; @param service with its package, such as `pluginregistration.Registration` */
export function serviceOf(file: string, service: string): ServiceClientConstructor {
  const path = join(import.meta.dirname, file);
  const definition = loadSync(path, { keepCase: true, longs: Number, defaults: true, enums: Number });
  let found: unknown = loadPackageDefinition(definition);
  for (const part of service.split(".")) found = (found as Record<string, unknown>)[part];
  return found as ServiceClientConstructor;
}

/** @returns the same methods under another name, as of another version of the service */
export function renamedService({ service }: ServiceClientConstructor, name: string): ServiceClientConstructor {
  const methods = Object.entries(service).map(([method, definition]) => {
    return [method, { ...definition, path: `/${name}/${method}` }] as const;
  });
  return makeGenericClientConstructor(Object.fromEntries(methods), name);
}

export interface GrpcPeer {
  readonly path: string;
  /** Ends its connections and removes the socket, as a process that ends in order. */
  stop(): void;
}

export async function serveGrpc(
  path: string,
  services: readonly (readonly [ServiceClientConstructor, UntypedServiceImplementation])[],
): Promise<GrpcPeer> {
  mkdirSync(dirname(path), { recursive: true });
  const server = new Server();
  for (const [{ service }, implementation] of services) server.addService(service, implementation);
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
      error ? reject(error) : resolve(),
    );
  });
  const stop = (): void => {
    server.forceShutdown();
    rmSync(path, { force: true });
  };
  return { path, stop };
}

/** One unary call by grpc-js. @throws its ServiceError */
export async function callGrpc(
  path: string,
  service: ServiceClientConstructor,
  method: string,
  request: object,
): Promise<Record<string, unknown>> {
  const client = new service(`unix:${path}`, credentials.createInsecure()) as Client & Record<string, unknown>;
  const call = client[method] as (request: object, done: (error: Error | null, answer: never) => void) => void;
  try {
    return await new Promise((resolve, reject) => {
      call.call(client, request, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  } finally {
    client.close();
  }
}

export interface RegisteringPlugin extends GrpcPeer {
  /** Reports of the kubelet, in order. */
  readonly statuses: readonly { readonly plugin_registered: boolean; readonly error: string }[];
  /** The next report that has not been taken. */
  reported(): Promise<{ readonly plugin_registered: boolean; readonly error: string }>;
}

export interface PluginDescription {
  readonly type: string;
  readonly name: string;
  readonly endpoint?: string;
  readonly supported_versions?: readonly string[];
}

type Status = RegisteringPlugin["statuses"][number];

/**
 * A plugin that registers by a socket in the registry.
 * @param info undefined: it never answers; a function is called for each question, and may refuse it
 */
export async function servePlugin(
  path: string,
  info: PluginDescription | undefined | (() => PluginDescription | Error),
  services: Parameters<typeof serveGrpc>[1] = [],
): Promise<RegisteringPlugin> {
  const registration = serviceOf("pluginregistration.proto", "pluginregistration.Registration");
  const statuses: Status[] = [];
  let taken = 0;
  let wake = Promise.withResolvers<void>();
  const reported = async (): Promise<Status> => {
    while (statuses.length <= taken) await wake.promise;
    taken += 1;
    return statuses[taken - 1] as Status;
  };
  const implementation: UntypedServiceImplementation = {
    GetInfo: (_call: unknown, done: (error: Error | null, answer?: object) => void) => {
      const answer = typeof info === "function" ? info() : info;
      if (answer instanceof Error) done(answer);
      else if (answer !== undefined) done(null, answer);
    },
    NotifyRegistrationStatus: (call: { request: Status }, done: (error: null, answer: object) => void) => {
      statuses.push(call.request);
      wake.resolve();
      wake = Promise.withResolvers<void>();
      done(null, {});
    },
  };
  const peer = await serveGrpc(path, [[registration, implementation], ...services]);
  return { ...peer, statuses, reported };
}
