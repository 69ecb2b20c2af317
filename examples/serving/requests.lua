-- wrk's script: texts of changing lengths, and at the end what the answers were, as one line of JSON.
local threads = {}

function setup(thread)
    thread:set("number", #threads + 1)
    table.insert(threads, thread)
end

function init(args)
    math.randomseed(number * 7919 + tonumber(args[1] or 1))
    longest = tonumber(args[2] or 192)
    answers, wrong = {}, 0
    for _, code in ipairs({200, 400, 413, 429, 500, 503}) do _G["status_" .. code] = 0 end
    other = 0
end

local letters = string.rep("the quick brown fox jumps over the lazy dog ", 12)

function request()
    local length = math.random(8, longest)
    local start = math.random(1, 40)
    local text = letters:sub(start, start + length - 1)
    return wrk.format("POST", "/v1/embeddings", {["Content-Type"] = "application/json"},
                      '{"input": "' .. text .. '"}')
end

function response(status, headers, body)
    local name = "status_" .. status
    if _G[name] then _G[name] = _G[name] + 1 else other = other + 1 end
    if status == 200 and not body:find('"embedding"', 1, true) then wrong = wrong + 1 end
end

function done(summary, latency, requests)
    local sums = {wrong = 0, other = 0}
    for _, thread in ipairs(threads) do
        for _, code in ipairs({200, 400, 413, 429, 500, 503}) do
            sums[code] = (sums[code] or 0) + thread:get("status_" .. code)
        end
        sums.wrong = sums.wrong + thread:get("wrong")
        sums.other = sums.other + thread:get("other")
    end
    local e = summary.errors
    io.write(string.format(
        '{"seconds": %.3f, "requests": %d, "ok": %d, "status_429": %d, "status_503": %d, "status_413": %d, ' ..
        '"status_500": %d, "status_400": %d, "other": %d, "wrong": %d, "socket_errors": %d, "timeouts": %d, ' ..
        '"p50_ms": %.2f, "p99_ms": %.2f, "max_ms": %.2f}\n',
        summary.duration / 1e6, summary.requests, sums[200], sums[429], sums[503], sums[413], sums[500],
        sums[400], sums.other, sums.wrong, e.connect + e.read + e.write, e.timeout,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
