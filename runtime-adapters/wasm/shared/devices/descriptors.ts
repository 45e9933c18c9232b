/**
 * Open files from one process to another over a unix socket (SCM_RIGHTS, unix(7)): how a runner gets a device that it
 * could not open itself. The child that opens the device listens; the runner proves that it is the one by a secret.
 */
import { closeSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { POLLIN, type SystemCalls } from "./system-calls.ts";

/** sys/socket.h, the same on x64 and arm64. */
const AF_UNIX = 1;
const SOCK_STREAM = 1;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
const MSG_CMSG_CLOEXEC = 0x40000000;
const MSG_NOSIGNAL = 0x4000;

const MAX_PATH_BYTES = 107;
/** struct sockaddr_un, struct msghdr, struct iovec, struct cmsghdr of 64-bit machines. */
const ADDRESS_BYTES = 110;
const HEADER_BYTES = 56;
const VECTOR_BYTES = 16;
const CONTROL_HEADER_BYTES = 16;
const FD_BYTES = 4;
/** A device takes up to two descriptors: its own, and a lock. */
const MAX_DESCRIPTORS = 2;
const CONTROL_BYTES = CONTROL_HEADER_BYTES + MAX_DESCRIPTORS * FD_BYTES;
/** 32 random bytes in hexadecimal. */
export const SECRET_BYTES = 64;
/** Bounds the wait for the other end, which is a process of this machine. */
const PATIENCE_MS = 5000;

const SOCKET = "int socket(int domain, int type, int protocol)";
const MESSAGE = "(int fd, void *header, int flags)";

/** Offsets of a message's parts in one buffer: header, vector, control, and the bytes beside them. */
const VECTOR_AT = HEADER_BYTES;
const CONTROL_AT = VECTOR_AT + VECTOR_BYTES;
const BYTES_AT = CONTROL_AT + CONTROL_BYTES;

/** Pure. @param address of the memory's first byte; @param bytes beside the descriptors, at least one */
export function messageMemory(memory: Buffer, address: bigint, bytes: number): void {
  memory.writeBigUInt64LE(address + BigInt(VECTOR_AT), 16);
  memory.writeBigUInt64LE(1n, 24);
  memory.writeBigUInt64LE(address + BigInt(CONTROL_AT), 32);
  memory.writeBigUInt64LE(BigInt(CONTROL_BYTES), 40);
  memory.writeBigUInt64LE(address + BigInt(BYTES_AT), VECTOR_AT);
  memory.writeBigUInt64LE(BigInt(bytes), VECTOR_AT + 8);
}

export class DescriptorListener implements Disposable {
  readonly #calls: SystemCalls;
  readonly #fd: number;

  /** @param path made; short, so relative to the working directory */
  constructor(calls: SystemCalls, path: string) {
    this.#calls = calls;
    this.#fd = calls.call(SOCKET, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    calls.call("int bind(int fd, void *address, unsigned int length)", this.#fd, addressOf(path), ADDRESS_BYTES);
    calls.call("int listen(int fd, int backlog)", this.#fd, MAX_DESCRIPTORS);
  }

  /**
   * Gives them to the first peer that knows the secret.
   * @param owner ends when no one wants them any more
   * @returns false when no peer came in time, or the owner has ended
   */
  give(secret: string, descriptors: readonly number[], owner: number): boolean {
    const calls = this.#calls;
    for (;;) {
      if (!calls.waitFor([...entriesOf(this.#fd), ...entriesOf(owner)], PATIENCE_MS)) return false;
      if (calls.ready(entriesOf(owner)).length > 0) return false;
      const peer = calls.call(
        "int accept4(int fd, void *address, void *length, int flags)",
        this.#fd,
        0n,
        0n,
        SOCK_CLOEXEC,
      );
      try {
        if (!this.#knows(peer, secret)) continue;
        this.#send(peer, descriptors);
        return true;
      } finally {
        closeSync(peer);
      }
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  #knows(peer: number, secret: string): boolean {
    if (!this.#calls.waitFor(entriesOf(peer), PATIENCE_MS)) return false;
    const said = Buffer.alloc(SECRET_BYTES);
    const length = this.#calls.call(
      "long recv(int fd, void *to, unsigned long length, int flags)",
      peer,
      said,
      SECRET_BYTES,
      0,
    );
    return length === SECRET_BYTES && said.toString("latin1") === secret;
  }

  #send(peer: number, descriptors: readonly number[]): void {
    const memory = Buffer.alloc(BYTES_AT + 8);
    messageMemory(memory, this.#calls.addressOf(memory), 1);
    const length = CONTROL_HEADER_BYTES + descriptors.length * FD_BYTES;
    memory.writeBigUInt64LE(BigInt(length), 40);
    memory.writeBigUInt64LE(BigInt(length), CONTROL_AT);
    memory.writeInt32LE(SOL_SOCKET, CONTROL_AT + 8);
    memory.writeInt32LE(SCM_RIGHTS, CONTROL_AT + 12);
    for (const [index, fd] of descriptors.entries()) {
      memory.writeInt32LE(fd, CONTROL_AT + CONTROL_HEADER_BYTES + index * FD_BYTES);
    }
    this.#calls.call(`long sendmsg${MESSAGE}`, peer, memory, MSG_NOSIGNAL);
  }
}

/** @throws `unavailable` when no one listens, `corrupt` when the other end gives no descriptors */
export function takeDescriptors(calls: SystemCalls, path: string, secret: string): number[] {
  const socket = calls.call(SOCKET, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  try {
    calls.call("int connect(int fd, void *address, unsigned int length)", socket, addressOf(path), ADDRESS_BYTES);
    const secretBytes = Buffer.from(secret, "latin1");
    calls.call(
      "long send(int fd, void *from, unsigned long length, int flags)",
      socket,
      secretBytes,
      secretBytes.length,
      MSG_NOSIGNAL,
    );
    if (!calls.waitFor(entriesOf(socket), PATIENCE_MS)) {
      throw new PicoletError("unavailable", "the process that opened the device does not answer");
    }
    const memory = Buffer.alloc(BYTES_AT + 8);
    messageMemory(memory, calls.addressOf(memory), 1);
    calls.call(`long recvmsg${MESSAGE}`, socket, memory, MSG_CMSG_CLOEXEC);
    return descriptorsIn(memory);
  } finally {
    closeSync(socket);
  }
}

/** Reads the descriptors that `recvmsg` left in the message. Pure. @throws `corrupt` */
export function descriptorsIn(memory: Buffer): number[] {
  const given = Number(memory.readBigUInt64LE(40));
  const length = Number(memory.readBigUInt64LE(CONTROL_AT));
  const count = (length - CONTROL_HEADER_BYTES) / FD_BYTES;
  const isRights =
    given >= CONTROL_HEADER_BYTES &&
    memory.readInt32LE(CONTROL_AT + 8) === SOL_SOCKET &&
    memory.readInt32LE(CONTROL_AT + 12) === SCM_RIGHTS;
  if (!isRights || !Number.isInteger(count) || count < 1 || count > MAX_DESCRIPTORS) {
    throw new PicoletError("corrupt", "the device has not come with the answer");
  }
  return Array.from({ length: count }, (_, index) =>
    memory.readInt32LE(CONTROL_AT + CONTROL_HEADER_BYTES + index * FD_BYTES),
  );
}

const entriesOf = (fd: number) => [{ fd, events: POLLIN }];

/** struct sockaddr_un */
function addressOf(path: string): Buffer {
  const memory = Buffer.alloc(ADDRESS_BYTES);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new PicoletError("invalid", `cannot name a socket ${path}: it is too long`);
  }
  memory.writeUInt16LE(AF_UNIX, 0);
  memory.write(path, 2);
  return memory;
}
