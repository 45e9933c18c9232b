/*
 * Files by WASI 0.3: its first argument says what it does, and each answers with `ok`, what was asked for, or `error` and the
 * number of the error code. Paths are absolute.
 *
 *   write PATH OFFSET TEXT   append PATH TEXT   read PATH OFFSET   some PATH N (that many bytes, then it lets go)
 *   many PATH N (writes N times 4 KiB)          again PATH N (opens, reads and closes it N times, and says so each 400)
 *   stat PATH   list PATH   size PATH N   time PATH SECONDS   sync PATH   hash PATH PATH
 *   mkdir PATH   rmdir PATH   rm PATH   mv PATH PATH   ln PATH PATH   symlink TARGET PATH   readlink PATH
 *   both PATH PATH   reads two files at the same time
 */
#include "async.h"

#define TYPES "wasi:filesystem/types@0.3.0"
#define METHOD(name) IMPORT(TYPES, "[method]descriptor." name)

IMPORT("wasi:filesystem/preopens@0.3.0", "get-directories") void get_directories(u32 *);
METHOD("open-at") void open_at(u32, u32, const char *, u32, u32, u32, u8 *);
IMPORT(TYPES, "[resource-drop]descriptor") void drop_descriptor(u32);
METHOD("read-via-stream") void read_via_stream(u32, u64, u32 *);
IMPORT(TYPES, "[async-lower][stream-read-0][method]descriptor.read-via-stream") u32 begin_read(u32, void *, u32);
IMPORT(TYPES, "[stream-drop-readable-0][method]descriptor.read-via-stream") void end_read(u32);
IMPORT(TYPES, "[future-read-1][method]descriptor.read-via-stream") u32 read_outcome(u32, u8 *);
IMPORT(TYPES, "[future-drop-readable-1][method]descriptor.read-via-stream") void drop_read_outcome(u32);
METHOD("write-via-stream") u32 write_via_stream(u32, u32, u64);
IMPORT(TYPES, "[stream-new-0][method]descriptor.write-via-stream") u64 new_written(void);
IMPORT(TYPES, "[async-lower][stream-write-0][method]descriptor.write-via-stream") u32 begin_write(u32, const void *, u32);
IMPORT(TYPES, "[stream-drop-writable-0][method]descriptor.write-via-stream") void end_write(u32);
IMPORT(TYPES, "[future-read-1][method]descriptor.write-via-stream") u32 write_outcome(u32, u8 *);
METHOD("append-via-stream") u32 append_via_stream(u32, u32);
IMPORT(TYPES, "[future-read-1][method]descriptor.append-via-stream") u32 append_outcome(u32, u8 *);
METHOD("read-directory") void read_directory(u32, u32 *);
IMPORT(TYPES, "[async-lower][stream-read-0][method]descriptor.read-directory") u32 read_entry(u32, void *, u32);
IMPORT(TYPES, "[future-read-1][method]descriptor.read-directory") u32 directory_outcome(u32, u8 *);
METHOD("stat-at") void stat_at(u32, u32, const char *, u32, u64 *);
METHOD("set-size") void set_size(u32, u64, u8 *);
METHOD("set-times-at") void set_times_at(u32, u32, const char *, u32, u32, u64, u32, u32, u64, u32, u8 *);
METHOD("sync") void sync(u32, u8 *);
METHOD("metadata-hash") void metadata_hash(u32, u64 *);
METHOD("is-same-object") u32 is_same_object(u32, u32);
METHOD("create-directory-at") void create_directory_at(u32, const char *, u32, u8 *);
METHOD("remove-directory-at") void remove_directory_at(u32, const char *, u32, u8 *);
METHOD("unlink-file-at") void unlink_file_at(u32, const char *, u32, u8 *);
METHOD("rename-at") void rename_at(u32, const char *, u32, u32, const char *, u32, u8 *);
METHOD("link-at") void link_at(u32, u32, const char *, u32, u32, const char *, u32, u8 *);
METHOD("symlink-at") void symlink_at(u32, const char *, u32, const char *, u32, u8 *);
METHOD("readlink-at") void readlink_at(u32, const char *, u32, u8 *);

enum { CREATE = 1, DIRECTORY = 2, EXCLUSIVE = 4, TRUNCATE = 8 };
enum { READ = 1, WRITE = 2, MUTATE = 32 };

static u32 directories, directory_count;
static u8 result[128] __attribute__((aligned(8)));
static char chunk[4096];
static char other[4096];

/* The preopened directory that a path begins with, and the rest of it. */
static u32 base(u32 word, const char **rest, u32 *size) {
  for (u32 at = 0; at < directory_count; at++) {
    const u32 *entry = (const u32 *)(directories + 12 * at);
    const char *name = (const char *)entry[1];
    u32 same = 0;
    while (same < entry[2] && same < length(word) && name[same] == text(word)[same]) same++;
    if (same < entry[2] || text(word)[same] != '/') continue;
    *rest = text(word) + same + 1;
    *size = length(word) - same - 1;
    return entry[0];
  }
  __builtin_trap();
}

static int failed(const u8 *code) {
  put_text("error ");
  put_number(*code);
  put_text("\n");
  return 0;
}

static int told(void) {
  if (result[0] != 0) return failed(result + 4);
  put_text("ok\n");
  return 1;
}

/* 0: it failed, and that was said. */
static u32 opened(u32 word, u32 how, u32 flags) {
  const char *rest;
  u32 size;
  u32 at = base(word, &rest, &size);
  if (size == 0) rest = ".", size = 1;
  open_at(at, 1, rest, size, how, flags, result);
  if (result[0] == 0) return *(u32 *)(result + 4);
  failed(result + 4);
  return 0;
}

static u32 read_some(u32 stream, void *into, u32 most) { return settled(begin_read(stream, into, most), stream); }

static void finish_read(u32 stream, u32 future) {
  end_read(stream);
  read_outcome(future, result);
  told();
}

static void read_file(u32 limit) {
  u32 file = opened(2, 0, READ), ends[2];
  if (file == 0) return;
  read_via_stream(file, limit == 0 ? number(3) : 0, ends);
  for (u32 left = limit; limit == 0 || left > 0;) {
    u32 most = sizeof chunk;
    if (limit != 0 && left < most) most = left;
    u32 told = read_some(ends[0], chunk, most);
    put(chunk, told >> 4);
    left -= told >> 4;
    if ((told & 0xf) != COMPLETED) break;
  }
  finish_read(ends[0], ends[1]);
  drop_descriptor(file);
}

/* Of two files, as they come. */
static void read_both(void) {
  u32 set = set_new(), streams[2], told[2], event[2], open = 2;
  char *into[2] = {chunk, other};
  for (u32 at = 0; at < 2; at++) {
    u32 file = opened(2 + at, 0, READ), ends[2];
    if (file == 0) return;
    read_via_stream(file, 0, ends);
    streams[at] = ends[0];
    told[at] = begin_read(streams[at], into[at], sizeof chunk);
    join(streams[at], set);
  }
  for (u32 at = 0; open > 0;) {
    if (told[at] == (u32)BLOCKED) {
      set_wait(set, event);
      at = event[0] == streams[0] ? 0 : 1;
      told[at] = event[1];
    }
    put(into[at], told[at] >> 4);
    if ((told[at] & 0xf) == COMPLETED) told[at] = begin_read(streams[at], into[at], sizeof chunk);
    else {
      join(streams[at], 0);
      end_read(streams[at]);
      told[at] = (u32)BLOCKED;
      open--;
    }
  }
}

static void again(void) {
  for (u32 times = number(3); times > 0; times--) {
    u32 before = used, ends[2], file = opened(2, 0, READ);
    if (file == 0) return;
    read_via_stream(file, 0, ends);
    while ((read_some(ends[0], chunk, sizeof chunk) & 0xf) == COMPLETED) {}
    end_read(ends[0]);
    read_outcome(ends[1], result);
    drop_read_outcome(ends[1]);
    drop_descriptor(file);
    if (result[0] != 0) __builtin_trap();
    used = before;
    if (times % 400 == 1) put_text(".\n");
  }
  put_text("ok\n");
}

static void write_file(int append, u32 times) {
  u32 file = opened(2, append ? 0 : CREATE, READ | WRITE);
  if (file == 0) return;
  u64 ends = new_written();
  u32 into = (u32)(ends >> 32);
  u32 future = append ? append_via_stream(file, (u32)ends) : write_via_stream(file, (u32)ends, times == 0 ? number(3) : 0);
  u32 word = append ? 3 : 4;
  for (u32 at = 0; at < sizeof chunk; at++) chunk[at] = (char)('a' + at % 26);
  const char *what = times == 0 ? text(word) : chunk;
  u32 size = times == 0 ? length(word) : sizeof chunk;
  for (u32 left = times == 0 ? 1 : times; left > 0; left--) {
    u32 told = COMPLETED;
    for (u32 at = 0; at < size && (told & 0xf) == COMPLETED; at += told >> 4) {
      told = settled(begin_write(into, what + at, size - at), into);
    }
    if ((told & 0xf) != COMPLETED) break;
  }
  end_write(into);
  if (append) append_outcome(future, result);
  else write_outcome(future, result);
  told();
  drop_descriptor(file);
}

static void list(void) {
  u32 directory = opened(2, DIRECTORY, READ), ends[2];
  if (directory == 0) return;
  read_directory(directory, ends);
  struct {
    u8 type;
    u32 type_more[3];
    const char *name;
    u32 size;
  } entries[4];
  for (;;) {
    u32 told = settled(read_entry(ends[0], entries, 4), ends[0]);
    for (u32 at = 0; at < told >> 4; at++) {
      put_number(entries[at].type);
      put_text(" ");
      put(entries[at].name, entries[at].size);
      put_text("\n");
    }
    if ((told & 0xf) != COMPLETED) break;
  }
  directory_outcome(ends[1], result);
  told();
}

static void stat(void) {
  const char *rest;
  u32 size;
  u32 at = base(2, &rest, &size);
  u64 *stat = (u64 *)result;
  stat_at(at, 0, rest, size, stat);
  if (result[0] != 0) {
    failed(result + 8);
    return;
  }
  put_number(result[8]);
  put_text(" size ");
  put_number(stat[4]);
  put_text(" modified ");
  /* Whether it is told, then the seconds. */
  put_number(*(u8 *)&stat[8]);
  put_text(stat[9] > 1500000000 ? " now\n" : " then\n");
}

static void hash(void) {
  u32 one = opened(2, 0, READ), two = opened(3, 0, READ);
  u64 *hash = (u64 *)result;
  metadata_hash(one, hash);
  u64 first = hash[1];
  metadata_hash(two, hash);
  put_text(first == hash[1] ? "equal " : "unlike ");
  put_text(is_same_object(one, two) ? "same\n" : "other\n");
}

static void change(void) {
  const char *path, *second;
  u32 size, second_size;
  if (is("symlink")) {
    u32 at = base(3, &path, &size);
    symlink_at(at, text(2), length(2), path, size, result);
    told();
    return;
  }
  u32 at = base(2, &path, &size);
  if (is("mkdir")) create_directory_at(at, path, size, result);
  else if (is("rmdir")) remove_directory_at(at, path, size, result);
  else if (is("rm")) unlink_file_at(at, path, size, result);
  else if (is("time")) set_times_at(at, 1, path, size, 0, 0, 0, 2, number(3), 0, result);
  else if (is("readlink")) {
    readlink_at(at, path, size, result);
    if (result[0] == 0) put((const char *)((u32 *)result)[1], ((u32 *)result)[2]);
    if (result[0] == 0) put_text(" ");
  } else {
    u32 to = base(3, &second, &second_size);
    if (is("mv")) rename_at(at, path, size, to, second, second_size, result);
    else if (is("ln")) link_at(at, 0, path, size, to, second, second_size, result);
    else __builtin_trap();
  }
  told();
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  u32 preopens[2];
  begin();
  get_directories(preopens);
  directories = preopens[0];
  directory_count = preopens[1];
  if (is("read")) read_file(0);
  else if (is("some")) read_file(number(3));
  else if (is("both")) read_both();
  else if (is("again")) again();
  else if (is("write")) write_file(0, 0);
  else if (is("many")) write_file(0, number(3));
  else if (is("append")) write_file(1, 0);
  else if (is("list")) list();
  else if (is("stat")) stat();
  else if (is("hash")) hash();
  else if (is("size") || is("sync")) {
    u32 file = opened(2, 0, READ | WRITE);
    if (file != 0) {
      if (is("size")) set_size(file, number(3), result);
      else sync(file, result);
      told();
    }
  } else change();
  stdout_end(out);
  task_return(0);
  return 0;
}
