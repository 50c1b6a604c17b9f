/* `shardc lsp`: messages in and out, and the child processes that answer. See lsp.h. */
#include "lsp.h"
#include "codegen/codegen.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  MOST_MESSAGE = 64 << 20,
  MOST_SECONDS = 20,
  NOT_BEGUN = -32002,
  BAD_REQUEST = -32600,
  NO_METHOD = -32601,
  OUR_ERROR = -32603
};

static bool write_all(int fd, const char *text, size_t n) {
  for (ssize_t did; n; text += did, n -= (size_t)did) {
    did = write(fd, text, n);
    if (did < 0 && errno == EINTR) did = 0;
    if (did < 0) return false;
  }
  return true;
}

/* Content-Length and the text, in one write. */
static void send_text(int fd, const char *text, size_t n) {
  char *framed;
  int length = asprintf(&framed, "Content-Length: %zu\r\n\r\n%s", n, text);
  if (length < 0 || !write_all(fd, framed, (size_t)length)) _exit(EXIT_ENVIRONMENT);
  free(framed);
}

static void send_error(const char *id, int code, const char *why) {
  char *text = NULL;
  size_t n;
  FILE *out = heap_stream(&text, &n);
  fprintf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":", id, code);
  json_put_string(out, why);
  fputs("}}", out);
  fclose(out);
  send_text(STDOUT_FILENO, text, n);
  free(text);
}

static void send_result(const char *id, const char *result) {
  char *text;
  int n = asprintf(&text, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", id, result);
  if (n < 0) _exit(EXIT_ENVIRONMENT);
  send_text(STDOUT_FILENO, text, (size_t)n);
  free(text);
}

/* ---- children ---- */

static void open_texts(Request *request) {
  const Server *server = request->server;
  for (uint32_t i = 0; i < server->documents.n; i++) {
    const EditedFile *document = &server->documents.at[i];
    if (!document->uri) continue;
    OpenText *open = ARENA_NEW(request->c->arena, OpenText);
    *open = (OpenText){document->path, document->text, document->length, request->c->open};
    request->c->open = open;
  }
}

/* In the child: id NULL where the client waits for no answer. */
static _Noreturn void answer_and_end(Request *request, LspAnswer *answer, const char *id, int fd) {
  char *text = NULL;
  size_t n;
  if (fd == STDOUT_FILENO) alarm(MOST_SECONDS);
  request->cli = *request->server->cli;
  request->c = request->cli.c = ctx_new();
  open_texts(request);
  request->out = heap_stream(&text, &n);
  if (id) fprintf(request->out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":", id);
  answer(request);
  if (id) fputc('}', request->out);
  fclose(request->out);
  if (n) send_text(fd, text, n);
  _exit(EXIT_FINE);
}

static const char *fault_of(Arena *arena, int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return arena_printf(arena, "no answer within %d s", MOST_SECONDS);
  return "an error of shardc, not of the input";
}

static void answer_in_child(Server *server, Request *request, LspAnswer *answer, const char *id) {
  int status = 0;
  pid_t child = fork();
  if (!child) answer_and_end(request, answer, id, STDOUT_FILENO);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (child > 0 && !status) return;
  if (id) send_error(id, OUR_ERROR, fault_of(server->cli->c->arena, status));
}

static void end_child(Server *server) {
  if (!server->child) return;
  kill(server->child, SIGKILL);
  waitpid(server->child, NULL, 0);
  close(server->pipe);
  server->child = 0;
}

/* Its message arrives in a pipe, so that a change can still withdraw it. */
static void begin_child(Server *server, EditedFile *document) {
  int ends[2];
  end_child(server);
  if (pipe2(ends, O_CLOEXEC)) return;
  Request request = {.server = server, .document = document};
  pid_t child = fork();
  if (!child) answer_and_end(&request, publish_whole, NULL, ends[1]);
  close(ends[1]);
  if (child > 0) server->child = child, server->pipe = ends[0];
  else close(ends[0]);
}

/* The child writes its messages at its end. */
static void finish_child(Server *server) {
  char *text = NULL, part[4096];
  size_t n;
  int status = 0;
  FILE *all = heap_stream(&text, &n);
  for (ssize_t got; (got = read(server->pipe, part, sizeof part)) > 0;)
    fwrite(part, 1, (size_t)got, all);
  fclose(all);
  waitpid(server->child, &status, 0);
  if (!status && !write_all(STDOUT_FILENO, text, n)) _exit(EXIT_ENVIRONMENT);
  free(text), close(server->pipe);
  server->child = 0;
}

/* ---- checks that wait until no message is left ---- */

static bool check_changed(Server *server) {
  bool any = false;
  for (uint32_t i = 0; i < server->documents.n; i++) {
    EditedFile *document = &server->documents.at[i];
    if (!document->uri || !document->changed) continue;
    Request request = {.server = server, .document = document};
    answer_in_child(server, &request, publish_check, NULL);
    document->changed = false, any = true;
  }
  for (uint32_t i = 0; i < server->documents.n && !any && !server->child; i++) {
    EditedFile *document = &server->documents.at[i];
    if (!document->uri || !document->whole) continue;
    begin_child(server, document);
    document->whole = false;
  }
  return any;
}

/* ---- messages ---- */

typedef struct Method {
  const char *name;
  LspAnswer *answer;
} Method;

static const Method methods[] = {
    {"textDocument/hover", answer_hover},         {"textDocument/definition", answer_definition},
    {"textDocument/completion", answer_complete}, {"textDocument/codeAction", answer_actions},
    {"textDocument/formatting", answer_format},   {"textDocument/documentSymbol", answer_symbols}};

static void initialize(Server *server, const char *id, Json params) {
  Json offered;
  char *name = NULL;
  if (json_at(params, "capabilities.general.positionEncodings", &offered) &&
      rt_json_peek(&offered) == '[' && rt_json_array(&offered))
    while (rt_json_element(&offered)) {
      free(name);
      name = json_text(offered, NULL);
      server->utf8 |= name && !strcmp(name, "utf-8");
      rt_json_skip(&offered);
    }
  free(name);
  server->begun = true;
  char *result = arena_printf(
      server->cli->c->arena,
      "{\"capabilities\":{\"positionEncoding\":\"%s\",\"textDocumentSync\":{\"openClose\":true,"
      "\"change\":2,\"save\":true},\"hoverProvider\":true,\"definitionProvider\":true,"
      "\"completionProvider\":{\"triggerCharacters\":[\"[\",\"=\",\"@\",\" \"]},"
      "\"codeActionProvider\":{\"codeActionKinds\":[\"quickfix\"]},"
      "\"documentFormattingProvider\":true,\"documentSymbolProvider\":true},"
      "\"serverInfo\":{\"name\":\"shardc\",\"version\":\"%s\"}}",
      server->utf8 ? "utf-8" : "utf-16", SHARDC_VERSION);
  send_result(id, result);
}

static void handle_request(Server *server, const char *name, const char *id, Json params) {
  Request request = {.server = server, .params = params};
  Json value;
  if (!strcmp(name, "initialize")) {
    initialize(server, id, params);
    return;
  }
  if (!server->begun || server->shut_down) {
    send_error(id, server->begun ? BAD_REQUEST : NOT_BEGUN,
               server->begun ? "the server is shut down" : "the server is not initialized");
    return;
  }
  if (!strcmp(name, "shutdown")) {
    server->shut_down = true, send_result(id, "null");
    return;
  }
  char *uri = json_at(params, "textDocument.uri", &value) ? json_text(value, NULL) : NULL;
  EditedFile *document = document_find(server, uri);
  free(uri);
  request.document = document;
  if (document)
    request.at = text_offset(document, server->utf8, json_whole(params, "position.line", 0),
                             json_whole(params, "position.character", 0));
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    if (strcmp(methods[i].name, name)) continue;
    if (document) answer_in_child(server, &request, methods[i].answer, id);
    else send_result(id, "null");
    return;
  }
  send_error(id, NO_METHOD, name);
}

static void closed(Server *server, Json params) {
  Json value;
  char *uri = json_at(params, "textDocument.uri", &value) ? json_text(value, NULL) : NULL;
  char *text = NULL;
  size_t n;
  document_close(server, params);
  if (!uri) return;
  FILE *out = heap_stream(&text, &n);
  fputs("{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/publishDiagnostics\",\"params\":{\"uri\":",
        out);
  json_put_string(out, uri);
  fputs(",\"diagnostics\":[]}}", out);
  fclose(out);
  send_text(STDOUT_FILENO, text, n);
  free(text), free(uri);
}

/* Files that use this one are checked anew. */
static void saved(Server *server) {
  for (uint32_t i = 0; i < server->documents.n; i++)
    server->documents.at[i].changed = server->documents.at[i].whole = true;
}

static void handle_notice(Server *server, const char *name, Json params) {
  if (!strcmp(name, "exit")) _exit(server->shut_down ? EXIT_FINE : EXIT_INPUT);
  if (strncmp(name, "textDocument/did", 16) || !server->begun) return;
  end_child(server);
  if (!strcmp(name, "textDocument/didOpen")) document_open(server, params);
  else if (!strcmp(name, "textDocument/didChange")) document_change(server, params);
  else if (!strcmp(name, "textDocument/didSave")) saved(server);
  else if (!strcmp(name, "textDocument/didClose")) closed(server, params);
}

static void handle(Server *server, const char *text, size_t n) {
  Json message = rt_json(text, (int64_t)n), method, id, params;
  bool asked = json_at(message, "id", &id);
  char *name = json_at(message, "method", &method) ? json_text(method, NULL) : NULL, *number = NULL;
  if (!json_at(message, "params", &params)) params = rt_json("{}", 2);
  Json end = id;
  if (asked && (rt_json_peek(&end), id = end, rt_json_skip(&end)))
    number = strndup(id.p, (size_t)(end.p - id.p));
  if (name && number) handle_request(server, name, number, params);
  else if (name) handle_notice(server, name, params);
  free(name), free(number); /* without a method it is an answer, and the server asks nothing */
}

/* ---- input ---- */

/* The beginning and length of the first message; false: it is not complete. */
static bool first_message(const Server *server, size_t *from, size_t *n) {
  const char *end = memmem(server->input, server->n, "\r\n\r\n", 4);
  if (!end) return server->n > 1 << 16 ? _exit(EXIT_INPUT), false : false;
  long length = -1;
  for (const char *line = server->input; line && line < end;) {
    if (!strncasecmp(line, "Content-Length:", 15)) length = strtol(line + 15, NULL, 10);
    line = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
    if (line) line += 2;
  }
  if (length < 0 || length > MOST_MESSAGE) _exit(EXIT_INPUT);
  *from = (size_t)(end - server->input) + 4, *n = (size_t)length;
  return server->n >= *from + *n;
}

/* Reads the input that has arrived. wait: until some arrives or the child that checks plans has
   ended. */
static bool receive(Server *server, bool wait) {
  struct pollfd from[] = {{STDIN_FILENO, POLLIN, 0}, {server->pipe, POLLIN, 0}};
  if (poll(from, server->child ? 2 : 1, wait ? -1 : 0) <= 0) return false;
  if (server->child && from[1].revents) finish_child(server);
  if (!from[0].revents) return false;
  if (server->cap - server->n < 4096) {
    server->cap = server->cap * 2 + 65536;
    char *more = heap_new(server->cap, 1);
    if (server->n) memcpy(more, server->input, server->n);
    free(server->input), server->input = more;
  }
  ssize_t got = read(STDIN_FILENO, server->input + server->n, server->cap - server->n - 1);
  if (got <= 0) return server->ended = got == 0 || errno != EINTR, false;
  server->n += (size_t)got, server->input[server->n] = 0;
  return true;
}

static bool handle_first(Server *server) {
  size_t from, n;
  if (!server->n || !first_message(server, &from, &n)) return false;
  handle(server, server->input + from, n);
  server->n -= from + n;
  memmove(server->input, server->input + from + n, server->n);
  server->input[server->n] = 0;
  return true;
}

Exit cmd_lsp(Cli *o) {
  Server server = {.cli = o};
  while (!server.ended) {
    if (handle_first(&server) || receive(&server, false)) continue;
    if (!server.ended && !check_changed(&server)) receive(&server, true);
  }
  end_child(&server);
  return EXIT_INPUT; /* the client went without `exit` */
}
