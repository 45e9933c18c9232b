/** Serves a component that exports wasi:http/handler of WASI 0.3, from the pool that serves those of 0.2. */

import type { AsyncLaunch, InstanceComponents } from "../../shared/component/component-run.ts";
import type { GlueMaker } from "../../shared/component/load-component.ts";
import { serveComponent } from "../../shared/component/serve-component.ts";
import type { ServeOptions } from "../../shared/grants/http-options.ts";
import type { HostInit } from "../../shared/host/host.ts";
import type { HttpErrorCode } from "../../shared/http/error-code.ts";
import { Fields } from "../../shared/http/fields.ts";
import { type IncomingRequest, OutgoingResponse, ResponseOutparam } from "../../shared/http/messages.ts";
import type { OutgoingHttp } from "../../shared/http/outgoing.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { trap } from "../../shared/resources/handles.ts";
import type { HandlerInstance } from "../../shared/serving/instance-pool.ts";
import { asyncHttp, asyncHttpImports } from "./async-http.ts";
import { AsyncInstance } from "./async-instance.ts";
import {
  type AsyncHttp,
  AsyncRequest,
  AsyncResponse,
  IncomingHostBody,
  settleWithoutBody,
  transmitBody,
} from "./async-messages.ts";
import { socketsOf } from "./async-network.ts";
import { type AsyncTasks, FAULTS } from "./async-tasks.ts";

const HANDLER = "wasi:http/handler@";

type Handle = (request: AsyncRequest) => Promise<AsyncResponse>;
type ServeLaunch = AsyncLaunch & { readonly serve: ServeOptions };

export interface AsyncServer {
  /** Rejects when it can serve nothing any more. */
  readonly broken: Promise<never>;
  /** Ends it at once. */
  close(): void;
}

/** Resolves when it serves. @throws errors of the first instance, or of the port */
export async function serveAsync(
  glue: GlueMaker,
  components: InstanceComponents,
  init: HostInit,
  { serve, sockets, outgoing, processLimitBytes }: ServeLaunch,
): Promise<AsyncServer> {
  const socketsFor = await socketsOf(components, { sockets: sockets === true, outgoing });
  const broken = Promise.withResolvers<never>();
  const instances = new Set<AsyncInstance>();
  // Nothing tells whose it is: all requests that are under way are lost.
  const onFault = (error: unknown): void => {
    for (const { tasks } of instances) tasks.fail(error);
  };
  const make = (asked: OutgoingHttp): HandlerInstance => {
    const instance = new AsyncInstance(glue, components, init);
    const http = asyncHttp(instance.context);
    const imports = { ...asyncHttpImports(http, asked), ...socketsFor(instance.context) };
    const handler = asyncHandler(instance.instantiate(imports), http, instance.tasks);
    instances.add(instance);
    const discard = (): void => {
      instances.delete(instance);
      instance.close();
    };
    return { ...handler, discard };
  };
  const parts = { make, host: components, outgoing, processLimitBytes, onBroken: broken.reject };
  const end = await serveComponent(parts, init, serve);
  for (const event of FAULTS) process.on(event, onFault);
  const close = (): void => {
    end();
    for (const event of FAULTS) process.off(event, onFault);
    for (const instance of instances) instance.close();
  };
  return { broken: broken.promise, close };
}

function asyncHandler(
  exports: Readonly<Record<string, unknown>>,
  http: AsyncHttp,
  tasks: AsyncTasks,
): Omit<HandlerInstance, "discard"> {
  const name = Object.keys(exports).find((each) => each.startsWith(HANDLER)) ?? "";
  const { handle } = exports[name] as { readonly handle: Handle };
  return {
    context: http.http,
    handle: (request, out) => tasks.unlessBroken(served(answered(handle, http, request, out), tasks)),
  };
}

/** It is busy until nothing of it runs any more, even if the response is complete. */
async function served(answer: Promise<void>, tasks: AsyncTasks): Promise<void> {
  await answer;
  await tasks.atRest();
}

/** Until the response is whole, which the component may still write when it has returned it. */
async function answered(
  handle: Handle,
  http: AsyncHttp,
  request: IncomingRequest,
  out: ResponseOutparam,
): Promise<void> {
  const received = receivedRequest(http, request);
  let response: AsyncResponse;
  try {
    response = await handle(received);
  } catch (error) {
    const code = codeOf(error);
    if (code === undefined) throw error;
    ResponseOutparam.set(out, { tag: "err", val: code });
    return;
  }
  if (!(response instanceof AsyncResponse)) throw trap("the component returned no response");
  const { fields, status, body } = response.given();
  const answer = new OutgoingResponse(http.http, new Fields(http.http, fields, false));
  answer.setStatusCode(status);
  const target = body.reader === undefined ? undefined : answer.body();
  const { pipe } = answer;
  ResponseOutparam.set(out, { tag: "ok", val: answer });
  if (target === undefined) settleWithoutBody(body);
  else await transmitBody(http, body, target, pipe);
}

function receivedRequest(http: AsyncHttp, request: IncomingRequest): AsyncRequest {
  const head = {
    method: request.method(),
    path: request.pathWithQuery(),
    scheme: request.scheme(),
    authority: request.authority(),
  };
  const { fields, pipe } = request.given();
  return new AsyncRequest(http, fields, new IncomingHostBody(http, pipe), head);
}

/** The error that the component itself reports; undefined: it trapped. */
function codeOf(error: unknown): HttpErrorCode | undefined {
  if (error instanceof Failure) return (error as Failure<HttpErrorCode>).payload;
  if (error instanceof Error && Object.hasOwn(error, "payload")) return Reflect.get(error, "payload") as HttpErrorCode;
  return undefined;
}
