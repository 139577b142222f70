// How the answers to one request become text: events of a stream while they come, or one body at the end. One writer
// for each of the three formats. Nothing here sends; answer_task.h does. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/request.h"

namespace sluice::server {

// What all answers to a request say of themselves.
struct AnswerHead {
  std::string id;       // of the request
  std::string model;    // the server's name for it
  int64_t created = 0;  // seconds since 1970
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Answers are numbered prompt by prompt. Each function returns the events that are to be sent now: none, if the
  // request wants no stream.
  virtual std::string progress(size_t answer, const GenerationStats& stats) = 0;
  virtual std::string token(size_t answer, const TokenEvent& event, const GenerationStats& stats) = 0;
  virtual std::string done(size_t answer, StopReason reason, const std::string& text, const std::string& stop,
                           const GenerationStats& stats) = 0;
  // When all are done: the last events of the stream, or the body.
  virtual std::string end() = 0;
  // The answer may as well end now.
  virtual bool enough(size_t) const { return false; }
};

// /completion. Both take the request's prompts for granted: tokens and text.
std::unique_ptr<AnswerWriter> completion_writer(CompletionRequest request, AnswerHead head,
                                                const chat::Tokenizer& tokenizer);
// /v1/completions
std::unique_ptr<AnswerWriter> text_writer(CompletionRequest request, AnswerHead head, const chat::Tokenizer& tokenizer);
// /v1/chat/completions. `format` must outlive it.
std::unique_ptr<AnswerWriter> chat_writer(const ChatRequest& request, const ChatPromptMade& prompt, AnswerHead head,
                                          const ChatFormat& format, const chat::Tokenizer& tokenizer);

}  // namespace sluice::server
