/** A plugin that answered GetInfo. */
export interface Plugin {
  /** The type that it names, which chooses its handler. */
  readonly type: string;
  /** A driver's name, or the resource of a device plugin. */
  readonly name: string;
  /** Absolute path of the socket that serves the plugin's own API. */
  readonly endpoint: string;
  readonly versions: readonly string[];
  /** The registration socket: it tells two plugins of one name apart, as during a rolling update. */
  readonly socketPath: string;
}

/** Takes the plugins of one type. Calls for one socket never overlap. */
export interface PluginHandler {
  /** @throws why the plugin is refused: the plugin receives the reason, and is asked again later */
  register(plugin: Plugin, signal: AbortSignal): Promise<void>;
  /**
   * The registration socket of a registered plugin is gone, or another plugin listens there now. Also called after a
   * registration that failed or took too long: for an unknown plugin it does nothing.
   */
  remove(plugin: Plugin): Promise<void>;
}

/** Loads the handler of each type with the first plugin of it. A type that is missing is refused. */
export type PluginHandlers = Readonly<Record<string, () => Promise<PluginHandler>>>;
