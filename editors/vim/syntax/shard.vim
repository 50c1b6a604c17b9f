" Vim syntax file for .shard files.
" Made from the tables of frontend/; change those, not this file.
if exists('b:current_syntax')
  finish
endif
syn iskeyword @,48-57,_,39
syn keyword shardItem use dims const fn grad layer model layout variant
syn keyword shardLine param sub stack input output return loss aux update project
syn keyword shardPart for of like pad as with
syn keyword shardWord none all causal on off inf pi
syn keyword shardLayer Linear LayerNorm RMSNorm
syn match shardFunction /\<\(abs\|exp\|log\|log1p\|sqrt\|rsqrt\|sin\|cos\|tanh\|sigmoid\|erf\|sign\|floor\|ceil\|min\|max\|not\|where\|float\|stop_gradient\|rand\|sum\|argmax\|cumsum\|dot\|outer\|expand\|rename\|split\|merge\|unstack\|concat\|slice\|pad\|shift\|iota\|one_hot\|bucket\|scatter_add\|top\|route\|attention\|rope\|cross_entropy\|repeat\|normal\|truncated_normal\|uniform\|sliding\|padding\|same\|blocks\|window\|global\|random\|fixed\|variable\|strided\|dilated\|table\|per_head\|bigbird\|longformer\|relu\|silu\|gelu\|gelu_tanh\|softplus\|clamp\|dropout\|mean\|var\|logsumexp\|softmax\|log_softmax\|nll\|alibi\|alibi_slopes\|mse\|bce\|load_balance\)\>\ze\s*\([[(]\|$\)/
syn match shardSetting /\(^\|[{;]\)\s*\zs\(size\|batch\|steps\|data\|optim\|ema\|lora\|lr\|clip\|delay\|eval\|save\|seed\|on_nan\|on\|mesh\|place\|micro\|pipeline\|zero\|recompute\|offload\|precision\|deterministic\|node\|host\|link\|reached\|prefix\|ignore\|config\)\>\.\@!/ contained
syn region shardSettings matchgroup=shardItem start=/\<\(extern\|train\|plan\|machine\|weights\)\>\ze[^{]*{/ end=/}/ contains=shardSetting,shardComment,shardString,shardNumber,shardWord,shardOperator
syn match shardAttribute /@\w\+/
syn match shardOperator /|>\|->\|<-\|[<>=!]=\|[-+*\/^|&<>=~]/
syn match shardNumber /\<\d\+\(\.\d\+\)\?\([eE][+-]\?\d\+\)\?\([A-Za-z%]\+\(\/s\)\?\)\?/
syn region shardString start=/"/ end=/"/ oneline
syn match shardComment /#.*$/
hi def link shardItem Structure
hi def link shardLine Statement
hi def link shardPart Keyword
hi def link shardWord Constant
hi def link shardLayer Type
hi def link shardFunction Function
hi def link shardSetting Identifier
hi def link shardAttribute PreProc
hi def link shardOperator Operator
hi def link shardNumber Number
hi def link shardString String
hi def link shardComment Comment
let b:current_syntax = 'shard'
