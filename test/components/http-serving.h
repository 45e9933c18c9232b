/* What serves wasi:http/incoming-handler without a C library: what each answer takes of the host. */
#include "canonical.h"

typedef int handle;

#define TYPES "wasi:http/types@0.2.3"
#define STREAMS "wasi:io/streams@0.2.3"
#define POLL "wasi:io/poll@0.2.3"

IMPORT(TYPES, "[constructor]fields") extern handle fields_new(void);
IMPORT(TYPES, "[method]incoming-request.path-with-query") extern void request_path(handle, u32 *);
IMPORT(TYPES, "[resource-drop]incoming-request") extern void request_drop(handle);
IMPORT(TYPES, "[constructor]outgoing-response") extern handle response_new(handle);
IMPORT(TYPES, "[method]outgoing-response.body") extern void response_body(handle, u32 *);
IMPORT(TYPES, "[static]response-outparam.set") extern void respond(handle, u32, u32, u32, u64, u32, u32, u32, u32);
IMPORT(TYPES, "[method]outgoing-body.write") extern void out_body_write(handle, u32 *);
IMPORT(TYPES, "[static]outgoing-body.finish") extern void out_body_finish(handle, u32, handle, void *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") extern void write_all(handle, const void *, u32, u32 *);
IMPORT(STREAMS, "[resource-drop]output-stream") extern void output_drop(handle);
IMPORT(POLL, "[method]pollable.block") extern void pollable_block(handle);
IMPORT(POLL, "[resource-drop]pollable") extern void pollable_drop(handle);
