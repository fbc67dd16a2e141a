// Chat and text files -> a dataset: token ids with the mask of what the target wrote. Nothing is
// dropped silently: every row is in the dataset or counted in the report. FAULTS.md section 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loops.h"
#include "data/report.h"
#include "data/rows.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace dflash::data {

struct PrepareOptions {
  int64_t max_tokens = 2048;   // ids and mask are cut here; plain text goes on as a new document
  int64_t min_supervised = 2;  // drop documents without so many supervised tokens in a row
  bool plain_text = false;     // take `text` rows and .txt files, every token supervised
  bool drop_loops = true;      // drop documents with an answer that loops
  LoopOptions loops;
  bool drop_duplicates = true;                  // of ids and mask together; the first stays
  std::vector<std::filesystem::path> held_out;  // drop documents that share 13 words in a row
  bool shuffle = false;       // over all sources, before max_documents cuts (R-PREP-8)
  uint64_t seed = 0;          // of the shuffle
  int64_t max_documents = 0;  // 0: all
  int64_t vocab_size = 0;     // rows of the target's embedding; 0: the tokenizer's size
};

struct Prepared {
  Dataset dataset;
  PrepareReport report;
};

/// Reads files of records (io/records.h; shapes: rows.h) and, with `plain_text`, .txt files whole.
/// A conversation becomes a document for each of ChatTemplate::training_rows; one of which the
/// template leaves something out, such as reasoning or tools, is dropped whole and counted. `chat`
/// may be null when no row needs a template: rows that do are dropped and counted. Broken records
/// and a torn end are counted. Error: a missing file, ids made by another tokenizer (as the
/// settings file beside regenerated answers says), or nothing kept (with the table).
Prepared prepare(const std::vector<std::filesystem::path>& files, const text::Tokenizer& tokenizer,
                 const text::ChatTemplate* chat, const PrepareOptions& options);

/// Ids and mask of a row's documents, uncut: of a conversation as many as its template needs, else
/// one. Exact ids are kept as they are: nothing is added to them. Error: a template that refuses
/// the conversation.
std::vector<text::Encoded> encode_row(const Row& row, const text::Tokenizer& tokenizer,
                                      const text::ChatTemplate* chat);

/// Cuts ids and mask alike; true when something was cut (R-PREP-3).
bool truncate(text::Encoded& document, int64_t max_tokens);

/// Length of the longest stretch of supervised tokens.
int64_t longest_supervised_run(const std::vector<uint8_t>& loss_mask);

}  // namespace dflash::data
