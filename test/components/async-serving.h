/* What every program takes of wasi:http/types of WASI 0.3 to serve wasi:http/handler. */
#include "async.h"

#define HTTP "wasi:http/types@0.3.0"

IMPORT(HTTP, "[constructor]fields") u32 new_fields(void);
IMPORT(HTTP, "[method]request.get-path-with-query") void get_path(u32, u32 *);
IMPORT(HTTP, "[resource-drop]request") void drop_request(u32);
IMPORT(HTTP, "[static]response.new") void new_response(u32, u32, u32, u32, u32 *);
IMPORT(HTTP, "[stream-new-0][static]response.new") u64 new_contents(void);
IMPORT(HTTP, "[async-lower][stream-write-0][static]response.new") u32 begin_answer(u32, const void *, u32);
IMPORT(HTTP, "[stream-drop-writable-0][static]response.new") void end_answer(u32);
IMPORT(HTTP, "[future-new-1][static]response.new") u64 new_trailers(void);
IMPORT(HTTP, "[async-lower][future-write-1][static]response.new") u32 begin_trailers(u32, const void *);
IMPORT(HTTP, "[future-drop-writable-1][static]response.new") void end_trailers(u32);
IMPORT(HTTP, "[future-drop-readable-2][static]response.new") void drop_answered(u32);
IMPORT("[export]wasi:http/handler@0.3.0", "[task-return]handle")
void task_return(u32, u32, u32, u64, u32, u32, u32, u32);

/* No trailers, and no error. */
static const u8 none[64] __attribute__((aligned(8)));
