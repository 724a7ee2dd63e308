#include "config/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/futex.h"
#include "config/text.h"

namespace gpufence {
namespace {

// What is there of an answer so far. kMore: it goes on.
enum class HttpProgress : uint8_t { kMore, kWhole, kRefused, kBroken };

constexpr size_t kNoLength = SIZE_MAX;
constexpr size_t kMostLength = size_t{1} << 30;

struct Headers {
  bool refused;  // any status but 200
  bool chunked;
  size_t length;  // kNoLength: not told
};

// A line without its end; false: it has not come whole.
bool TakeLine(std::string_view* rest, std::string_view* line) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return false;
  *line = First(*rest, end);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  rest->remove_prefix(end + 1);
  return true;
}

bool ReadLength(std::string_view text, size_t* length) {
  size_t number = 0;
  for (const char digit : text) {
    if (!IsDigit(digit) || number > kMostLength) return false;
    number = number * 10 + static_cast<size_t>(digit - '0');
  }
  *length = number;
  return !text.empty();
}

bool ReadChunkSize(std::string_view line, size_t* size) {
  const std::string_view digits = Trim(First(line, line.find(';')), " \t");
  *size = 0;
  for (const char digit : digits) {
    const char lower = Lower(digit);
    const bool letter = lower >= 'a' && lower <= 'f';
    if ((!IsDigit(digit) && !letter) || *size > kMostLength) return false;
    *size = *size * 16 + static_cast<size_t>(letter ? lower - 'a' + 10 : digit - '0');
  }
  return !digits.empty();
}

// "HTTP/1.1 200 OK"
bool ReadStatus(std::string_view line, Headers* headers) {
  if (!StartsWith(line, "HTTP/1.")) return false;
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return false;
  const std::string_view code = First(After(line, blank + 1), 3);
  if (code.size() != 3 || !IsDigit(code[0]) || !IsDigit(code[1]) || !IsDigit(code[2])) return false;
  headers->refused = code != "200";
  return true;
}

bool ReadHeader(std::string_view line, Headers* headers) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = First(line, colon);
  const std::string_view value = Trim(After(line, colon + 1), " \t");
  if (EqualsIgnoringCase(name, "content-length")) {
    return headers->length == kNoLength && ReadLength(value, &headers->length);
  }
  if (EqualsIgnoringCase(name, "transfer-encoding")) {
    if (headers->chunked || !EqualsIgnoringCase(value, "chunked")) return false;
    headers->chunked = true;
  }
  return true;
}

// True once the headers have come whole; *broken tells whether they are none.
bool ReadHeaders(std::string_view* rest, Headers* headers, bool* broken) {
  std::string_view line;
  *broken = false;
  if (!TakeLine(rest, &line)) return false;
  *broken = !ReadStatus(line, headers);
  while (!*broken && TakeLine(rest, &line)) {
    if (line.empty()) {
      *broken = headers->chunked && headers->length != kNoLength;
      return true;
    }
    *broken = !ReadHeader(line, headers);
  }
  return *broken;
}

// The body is moved together only once it has come whole, since it is read again till then.
HttpProgress ReadChunks(std::string_view rest, char* to, bool ended, std::string_view* body) {
  const HttpProgress unfinished = ended ? HttpProgress::kBroken : HttpProgress::kMore;
  for (const bool moves : {false, true}) {
    std::string_view left = rest;
    std::string_view line;
    size_t used = 0;
    for (;;) {
      size_t size = 0;
      if (!TakeLine(&left, &line)) return unfinished;
      if (!ReadChunkSize(line, &size)) return HttpProgress::kBroken;
      if (size == 0) break;
      if (left.size() < size) return unfinished;
      if (moves) memmove(to + used, left.data(), size);
      used += size;
      left.remove_prefix(size);
      if (!TakeLine(&left, &line)) return unfinished;
      if (!line.empty()) return HttpProgress::kBroken;
    }
    do {
      if (!TakeLine(&left, &line)) return unfinished;
    } while (!line.empty());
    *body = {to, used};
  }
  return HttpProgress::kWhole;
}

// What has come: status, headers, and a body by length, in chunks or to the end. `ended`: nothing
// follows. Pure, but for the pieces of a chunked body, which are moved together.
HttpProgress ReadHttpAnswer(char* bytes, size_t count, bool ended, std::string_view* body) {
  std::string_view rest{bytes, count};
  Headers headers{false, false, kNoLength};
  bool broken = false;
  if (!ReadHeaders(&rest, &headers, &broken)) {
    return ended ? HttpProgress::kBroken : HttpProgress::kMore;
  }
  if (broken) return HttpProgress::kBroken;
  if (headers.refused) return HttpProgress::kRefused;
  if (headers.chunked) {
    return ReadChunks(rest, bytes + (count - rest.size()), ended, body);
  }
  if (headers.length == kNoLength) {
    *body = rest;
    return ended ? HttpProgress::kWhole : HttpProgress::kMore;
  }
  *body = First(rest, headers.length);
  if (rest.size() >= headers.length) return HttpProgress::kWhole;
  return ended ? HttpProgress::kBroken : HttpProgress::kMore;
}

constexpr const char* kLate = "does not answer in time";

struct Address {
  union {
    sockaddr any;
    sockaddr_in four;
    sockaddr_in6 six;
  };
  socklen_t bytes;
};

// By inet_pton alone: a resolver could load modules into the program.
bool ReadAddress(const char* text, uint16_t port, Address* address) {
  memset(static_cast<void*>(address), 0, sizeof *address);
  if (inet_pton(AF_INET, text, &address->four.sin_addr) == 1) {
    address->four.sin_family = AF_INET;
    address->four.sin_port = htons(port);
    address->bytes = sizeof address->four;
    return true;
  }
  if (inet_pton(AF_INET6, text, &address->six.sin6_addr) != 1) return false;
  address->six.sin6_family = AF_INET6;
  address->six.sin6_port = htons(port);
  address->bytes = sizeof address->six;
  return true;
}

class Socket {
 public:
  // A program that closed its standard streams goes on writing to their numbers.
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (fd_ < 0 || fd_ > STDERR_FILENO) return;
    const int beyond = fcntl(fd_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd_);
    fd_ = beyond;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }

  // False: the deadline has passed.
  bool WaitFor(short events, uint64_t deadline_ns) const {
    for (;;) {
      const uint64_t now = NowNs();
      if (now >= deadline_ns) return false;
      pollfd asked{fd_, events, 0};
      const int ready = poll(&asked, 1, static_cast<int>((deadline_ns - now) / 1000000 + 1));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

 private:
  int fd_;
};

bool WouldWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

const char* Connect(const Socket& socket, const Address& address, uint64_t deadline_ns) {
  if (connect(socket.fd(), &address.any, address.bytes) == 0) return nullptr;
  if (errno != EINPROGRESS && errno != EINTR) return "cannot be reached";
  if (!socket.WaitFor(POLLOUT, deadline_ns)) return kLate;
  int error = 0;
  socklen_t bytes = sizeof error;
  const bool asked = getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0;
  return asked && error == 0 ? nullptr : "cannot be reached";
}

const char* Send(const Socket& socket, std::string_view request, uint64_t deadline_ns) {
  while (!request.empty()) {
    const ssize_t sent = send(socket.fd(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      request.remove_prefix(static_cast<size_t>(sent));
    } else if (!WouldWait()) {
      return "closed the connection";
    } else if (!socket.WaitFor(POLLOUT, deadline_ns)) {
      return kLate;
    }
  }
  return nullptr;
}

const char* Receive(const Socket& socket, uint64_t deadline_ns, char* buffer, size_t bytes,
                    std::string_view* body) {
  size_t used = 0;
  for (;;) {
    if (!socket.WaitFor(POLLIN, deadline_ns)) return kLate;
    if (used == bytes) return "sends an answer that is too long";
    const ssize_t got = recv(socket.fd(), buffer + used, bytes - used, 0);
    if (got < 0 && WouldWait()) continue;
    const bool ended = got <= 0;
    if (got > 0) used += static_cast<size_t>(got);
    switch (ReadHttpAnswer(buffer, used, ended, body)) {
      case HttpProgress::kMore:
        break;
      case HttpProgress::kWhole:
        return nullptr;
      case HttpProgress::kRefused:
        return "refuses to answer";
      case HttpProgress::kBroken:
        return ended ? "closed the connection before its answer was whole"
                     : "sends an answer that is not HTTP";
    }
  }
}

const char* Exchange(const Address& address, const HttpQuestion& question, char* buffer,
                     size_t bytes, std::string_view* body) {
  const Socket socket(address.any.sa_family);
  if (socket.fd() < 0) return "cannot be asked: this process is not allowed to open a socket";
  const char* wrong = Connect(socket, address, question.deadline_ns);
  if (wrong == nullptr) wrong = Send(socket, question.request, question.deadline_ns);
  if (wrong == nullptr) wrong = Receive(socket, question.deadline_ns, buffer, bytes, body);
  return wrong;
}

}  // namespace

bool IsAddress(const char* text) {
  Address address;
  return ReadAddress(text, 0, &address);
}

const char* AskHttp(const HttpQuestion& question, char* buffer, size_t bytes,
                    std::string_view* body) {
  Address address;
  if (!ReadAddress(question.address, question.port, &address)) return "has no numeric address";
  const int saved_errno = errno;
  const char* wrong = Exchange(address, question, buffer, bytes, body);
  errno = saved_errno;
  return wrong;
}

}  // namespace gpufence
