#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

// The part of libcurl's interface that we call, so that no header of it is needed. Names,
// numbers and layouts are those of curl/curl.h, which are stable: a program that was
// compiled for 7.68 runs with every later release.
namespace torchparquet {

// NOLINTBEGIN(readability-identifier-naming,bugprone-tagged-union-member-count): as
// libcurl has them.
using CURL = void;
using CURLM = void;
using CURLSH = void;
using CURLU = struct Curl_URL;
using curl_off_t = int64_t;
using curl_socket_t = int;

enum CURLcode : int {
  CURLE_OK = 0,
  CURLE_UNSUPPORTED_PROTOCOL = 1,
  CURLE_URL_MALFORMAT = 3,
  CURLE_NOT_BUILT_IN = 4,
  CURLE_OUT_OF_MEMORY = 27,
  CURLE_OPERATION_TIMEDOUT = 28,
  CURLE_BAD_FUNCTION_ARGUMENT = 43,
  CURLE_SSL_ENGINE_NOTFOUND = 53,
  CURLE_SSL_CERTPROBLEM = 58,
  CURLE_SSL_CIPHER = 59,
  CURLE_PEER_FAILED_VERIFICATION = 60,
  CURLE_SSL_CACERT_BADFILE = 77,
};
enum CURLMcode : int { CURLM_OK = 0, CURLM_OUT_OF_MEMORY = 3 };
enum CURLUcode : int { CURLUE_OK = 0, CURLUE_OUT_OF_MEMORY = 7 };
enum CURLSHcode : int { CURLSHE_OK = 0 };

enum CURLoption : int {
  CURLOPT_LOW_SPEED_LIMIT = 19,
  CURLOPT_LOW_SPEED_TIME = 20,
  CURLOPT_FRESH_CONNECT = 74,
  CURLOPT_HTTP_VERSION = 84,
  CURLOPT_BUFFERSIZE = 98,
  CURLOPT_NOSIGNAL = 99,
  CURLOPT_CONNECTTIMEOUT_MS = 156,
  CURLOPT_HTTP_CONTENT_DECODING = 158,
  CURLOPT_PROTOCOLS = 181,
  CURLOPT_TCP_KEEPALIVE = 213,
  CURLOPT_PATH_AS_IS = 234,
  CURLOPT_SUPPRESS_CONNECT_HEADERS = 265,
  CURLOPT_DNS_SHUFFLE_ADDRESSES = 275,
  CURLOPT_QUICK_EXIT = 322,  // since 7.87
  CURLOPT_WRITEDATA = 10001,
  CURLOPT_URL = 10002,
  CURLOPT_ERRORBUFFER = 10010,
  CURLOPT_USERAGENT = 10018,
  CURLOPT_HTTPHEADER = 10023,
  CURLOPT_HEADERDATA = 10029,
  CURLOPT_CAINFO = 10065,
  CURLOPT_SHARE = 10100,
  CURLOPT_PRIVATE = 10103,
  CURLOPT_PROXY_CAINFO = 10246,
  CURLOPT_WRITEFUNCTION = 20011,
  CURLOPT_HEADERFUNCTION = 20079,
  CURLOPT_OPENSOCKETFUNCTION = 20163,
};
enum CURLINFO : int {
  CURLINFO_EFFECTIVE_URL = 0x100001,
  CURLINFO_PRIVATE = 0x100015,
  CURLINFO_REDIRECT_URL = 0x10001f,
  CURLINFO_RETRY_AFTER = 0x600039,
};
enum CURLMoption : int { CURLMOPT_PIPELINING = 3, CURLMOPT_MAXCONNECTS = 6 };
enum CURLSHoption : int { CURLSHOPT_SHARE = 1 };
enum CURLUPart : int {
  CURLUPART_URL = 0,
  CURLUPART_SCHEME = 1,
  CURLUPART_HOST = 5,
  CURLUPART_PORT = 6,
};
enum curlsocktype : int { CURLSOCKTYPE_IPCXN = 0 };
enum CURLMSG : int { CURLMSG_DONE = 1 };

inline constexpr size_t CURL_ERROR_SIZE = 256;
inline constexpr long CURL_GLOBAL_DEFAULT = 3;
inline constexpr long CURL_HTTP_VERSION_1_1 = 2;
inline constexpr int CURL_LOCK_DATA_SSL_SESSION = 4;
inline constexpr long CURLPIPE_NOTHING = 0;
inline constexpr long CURLPROTO_HTTP = 1;
inline constexpr long CURLPROTO_HTTPS = 2;
inline constexpr unsigned CURLU_DEFAULT_PORT = 1;

struct CURLMsg {
  CURLMSG msg;
  CURL* easy_handle;
  union {
    void* whatever;
    CURLcode result;
  } data;
};
struct curl_sockaddr {
  int family;
  int socktype;
  int protocol;
  unsigned addrlen;
  sockaddr addr;
};
struct curl_slist;
// NOLINTEND(readability-identifier-naming,bugprone-tagged-union-member-count)
// The beginning of curl_version_info_data.
struct CurlVersion {
  int age;
  const char* version;
  unsigned version_num;
};

// Each function, by its name without "curl_".
#define TORCHPARQUET_OF_LIBCURL(F)                                                       \
  F(CURLcode, global_init, (long flags))                                                 \
  F(const CurlVersion*, version_info, (int age))                                         \
  F(void, free, (void* text))                                                            \
  F(CURL*, easy_init, ())                                                                \
  F(void, easy_cleanup, (CURL * handle))                                                 \
  F(CURLcode, easy_setopt, (CURL * handle, CURLoption option, ...))                      \
  F(CURLcode, easy_getinfo, (CURL * handle, CURLINFO info, ...))                         \
  F(const char*, easy_strerror, (CURLcode code))                                         \
  F(CURLM*, multi_init, ())                                                              \
  F(CURLMcode, multi_cleanup, (CURLM * multi))                                           \
  F(CURLMcode, multi_setopt, (CURLM * multi, CURLMoption option, ...))                   \
  F(CURLMcode, multi_add_handle, (CURLM * multi, CURL * handle))                         \
  F(CURLMcode, multi_remove_handle, (CURLM * multi, CURL * handle))                      \
  F(CURLMcode, multi_perform, (CURLM * multi, int* num_running))                         \
  F(CURLMcode, multi_poll,                                                               \
    (CURLM * multi, void* others, unsigned num_others, int milliseconds,                 \
     int* num_ready))                                                                    \
  F(CURLMcode, multi_wakeup, (CURLM * multi))                                            \
  F(CURLMsg*, multi_info_read, (CURLM * multi, int* num_left))                           \
  F(const char*, multi_strerror, (CURLMcode code))                                       \
  F(CURLSH*, share_init, ())                                                             \
  F(CURLSHcode, share_cleanup, (CURLSH * share))                                         \
  F(CURLSHcode, share_setopt, (CURLSH * share, CURLSHoption option, ...))                \
  F(curl_slist*, slist_append, (curl_slist * list, const char* text))                    \
  F(void, slist_free_all, (curl_slist * list))                                           \
  F(CURLU*, url, ())                                                                     \
  F(void, url_cleanup, (CURLU * url))                                                    \
  F(CURLUcode, url_set, (CURLU * url, CURLUPart part, const char* text, unsigned flags)) \
  F(CURLUcode, url_get, (const CURLU* url, CURLUPart part, char** text, unsigned flags))

struct Libcurl {
#define TORCHPARQUET_MEMBER(Result, name, parameters) Result(*name) parameters = nullptr;
  TORCHPARQUET_OF_LIBCURL(TORCHPARQUET_MEMBER)
#undef TORCHPARQUET_MEMBER
};

// Names a library to use in place of the system's. Call it before anything else here.
void OfferLibcurl(const std::string& path);
// The library that this extension has in it, or else that is found when it is first asked
// for, of 7.68 or later; null if there is none. It stays loaded.
const Libcurl* FindLibcurl();
// The same. Throws Error(kNotSupported) if there is none.
const Libcurl& Curl();

}  // namespace torchparquet
