/* wasi:sockets of WASI 0.3, as its functions are called: a program imports those alone that it uses. */
#include "async.h"

#define SOCKETS "wasi:sockets/types@0.3.0"
#define NAMES "wasi:sockets/ip-name-lookup@0.3.0"
/* An ip-socket-address as parameters: which of the two, port, and for IPv4 four octets, for IPv6 flow, eight groups and zone. */
#define ADDRESS u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32

IMPORT(SOCKETS, "[static]tcp-socket.create") void tcp_create(u32, u8 *);
IMPORT(SOCKETS, "[resource-drop]tcp-socket") void tcp_drop(u32);
IMPORT(SOCKETS, "[method]tcp-socket.bind") void tcp_bind(u32, ADDRESS, u8 *);
IMPORT(SOCKETS, "[async-lower][method]tcp-socket.connect") u32 tcp_connect(const void *, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.listen") void tcp_listen(u32, u8 *);
IMPORT(SOCKETS, "[async-lower][stream-read-0][method]tcp-socket.listen") u32 begin_accept(u32, u32 *, u32);
IMPORT(SOCKETS, "[stream-drop-readable-0][method]tcp-socket.listen") void end_accept(u32);
IMPORT(SOCKETS, "[stream-cancel-read-0][method]tcp-socket.listen") u32 cancel_accept(u32);
IMPORT(SOCKETS, "[method]tcp-socket.send") u32 tcp_send(u32, u32);
IMPORT(SOCKETS, "[stream-new-0][method]tcp-socket.send") u64 new_sent(void);
IMPORT(SOCKETS, "[async-lower][stream-write-0][method]tcp-socket.send") u32 begin_write(u32, const void *, u32);
IMPORT(SOCKETS, "[stream-drop-writable-0][method]tcp-socket.send") void end_write(u32);
IMPORT(SOCKETS, "[async-lower][future-read-1][method]tcp-socket.send") u32 begin_sent(u32, u8 *);
IMPORT(SOCKETS, "[future-drop-readable-1][method]tcp-socket.send") void drop_sent(u32);
IMPORT(SOCKETS, "[method]tcp-socket.receive") void tcp_receive(u32, u32 *);
IMPORT(SOCKETS, "[async-lower][stream-read-0][method]tcp-socket.receive") u32 begin_read(u32, void *, u32);
IMPORT(SOCKETS, "[stream-drop-readable-0][method]tcp-socket.receive") void end_read(u32);
IMPORT(SOCKETS, "[async-lower][future-read-1][method]tcp-socket.receive") u32 begin_received(u32, u8 *);
IMPORT(SOCKETS, "[future-drop-readable-1][method]tcp-socket.receive") void drop_received(u32);
IMPORT(SOCKETS, "[method]tcp-socket.get-local-address") void tcp_local(u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-remote-address") void tcp_remote(u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-is-listening") u32 tcp_is_listening(u32);
IMPORT(SOCKETS, "[method]tcp-socket.get-address-family") u32 tcp_family(u32);
IMPORT(SOCKETS, "[method]tcp-socket.set-listen-backlog-size") void tcp_set_backlog(u32, u64, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-keep-alive-enabled") void tcp_keep_alive(u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-keep-alive-enabled") void tcp_set_keep_alive(u32, u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-keep-alive-idle-time") void tcp_idle_time(u32, u64 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-keep-alive-idle-time") void tcp_set_idle_time(u32, u64, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-keep-alive-interval") void tcp_interval(u32, u64 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-keep-alive-interval") void tcp_set_interval(u32, u64, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-keep-alive-count") void tcp_count(u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-keep-alive-count") void tcp_set_count(u32, u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-hop-limit") void tcp_hops(u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-hop-limit") void tcp_set_hops(u32, u32, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-receive-buffer-size") void tcp_receive_size(u32, u64 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-receive-buffer-size") void tcp_set_receive_size(u32, u64, u8 *);
IMPORT(SOCKETS, "[method]tcp-socket.get-send-buffer-size") void tcp_send_size(u32, u64 *);
IMPORT(SOCKETS, "[method]tcp-socket.set-send-buffer-size") void tcp_set_send_size(u32, u64, u8 *);
IMPORT(SOCKETS, "[static]udp-socket.create") void udp_create(u32, u8 *);
IMPORT(SOCKETS, "[resource-drop]udp-socket") void udp_drop(u32);
IMPORT(SOCKETS, "[method]udp-socket.bind") void udp_bind(u32, ADDRESS, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.connect") void udp_connect(u32, ADDRESS, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.disconnect") void udp_disconnect(u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.send") void udp_send(u32, const void *, u32, u32, ADDRESS, u8 *);
IMPORT(SOCKETS, "[async-lower][method]udp-socket.send") u32 begin_udp_send(const void *, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.receive") void udp_receive(u32, u8 *);
IMPORT(SOCKETS, "[async-lower][method]udp-socket.receive") u32 begin_udp_receive(u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.get-local-address") void udp_local(u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.get-remote-address") void udp_remote(u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.get-address-family") u32 udp_family(u32);
IMPORT(SOCKETS, "[method]udp-socket.get-unicast-hop-limit") void udp_hops(u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.set-unicast-hop-limit") void udp_set_hops(u32, u32, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.get-receive-buffer-size") void udp_receive_size(u32, u64 *);
IMPORT(SOCKETS, "[method]udp-socket.set-receive-buffer-size") void udp_set_receive_size(u32, u64, u8 *);
IMPORT(SOCKETS, "[method]udp-socket.get-send-buffer-size") void udp_send_size(u32, u64 *);
IMPORT(SOCKETS, "[method]udp-socket.set-send-buffer-size") void udp_set_send_size(u32, u64, u8 *);
IMPORT(NAMES, "resolve-addresses") void resolve(const char *, u32, u8 *);
