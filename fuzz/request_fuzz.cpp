// Bodies of requests made of arbitrary bytes: each is read by every endpoint's reader, or refused with a 400 that names
// what is wrong; nothing else happens. The first byte chooses the endpoint.
#include <cstdint>
#include <string_view>

#include "chat/small_vocabulary.h"
#include "chat/tokenizer.h"
#include "server/api_error.h"
#include "server/body.h"
#include "server/chat_request.h"

namespace {

using namespace sluice;

const chat::Tokenizer& tokenizer() {
  static const chat::Tokenizer one(test::byte_vocabulary({{"t", "h"}, {"th", "e"}}));
  return one;
}

void read(uint8_t endpoint, std::string_view text) {
  using namespace sluice::server;
  RequestContext context{tokenizer(), {}, {}, 4096, 2, 100, {}};
  const jinja::Value body = parse_body(text, {.depth = 64, .elements = 10000});
  switch (endpoint % 6) {
    case 0:
      read_completion(Fields(body, completion_fields()), context);
      break;
    case 1:
      read_openai_completion(Fields(body, openai_completion_fields()), context);
      break;
    case 2:
      read_chat(Fields(body, chat_fields()), context, {});
      break;
    case 3:
      read_question(Fields(body, template_fields()), context.limits);
      break;
    case 4:
      read_tokens("content", *Fields(body, tokenize_fields()).find("content"), context.tokenizer, true, true);
      break;
    case 5:
      Fields(body, slot_fields()).text("filename");
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const sluice::server::ApiError& error) {
    if (error.status() != 400) throw;
  }
  return 0;
}
